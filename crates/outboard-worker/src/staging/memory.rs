//! Page-locked staging memory, in blocks that transfers take pieces of.
//!
//! Page-locking costs milliseconds for a block, mostly for finding the pages. A helper thread
//! therefore makes a context's first block ahead, when the program allocates device memory that is
//! large enough for such copies; it uses huge pages where the system has them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use outboard_abi::{CUresult, CUstream, CUstream_flags};
use outboard_driver::{Table, call};
use outboard_session::chunks::Cut;
use outboard_session::groups::{FLAGS, Groups};
use outboard_session::ranges::Ranges;
use outboard_wire::DevicePtr;
use outboard_wire::limits::WINDOW;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::account::{Account, BlockPermit};
use super::line::Line;
use super::transfer::CopySite;
use crate::io::{Bulk, KnownMemory};
use crate::objects::Handle;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
pub(super) const REGISTER: u32 = 3;

const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a block: the largest transfer's piece, in huge pages.
pub(super) const BLOCK: usize = WINDOW + HUGE_PAGE;

/// Memory mapped here and registered with a context, so that it outlives the context.
struct Block {
    memory: *mut u8,
    /// By which the device knows `memory`.
    device: DevicePtr,
    free: Mutex<Ranges>,
    /// Whether an adapter knows it, once there has been one.
    known: Mutex<Option<Option<KnownMemory>>>,
    _permit: BlockPermit,
}

// SAFETY: plain memory; flags are accessed as atomics, and slots belong to one side at a time by
// the flags.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Maps and registers a block. The context is current.
    fn new(table: &Table, account: &Arc<Account>) -> Result<Arc<Block>, CUresult> {
        let permit = account.block_permit(table).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                BLOCK,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let memory = memory.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut block = Block {
            memory: memory.cast(),
            device: DevicePtr::NULL,
            free: Mutex::new(Ranges::new(BLOCK)),
            known: Mutex::default(),
            _permit: permit,
        };
        account.locking().prepare(memory.cast(), BLOCK);
        call!(table, cuMemHostRegister_v2(memory, BLOCK, REGISTER))?;
        call!(table, cuMemHostGetDevicePointer_v2(&raw mut block.device.0, memory, 0))?;
        Ok(Arc::new(block))
    }

    /// Has the adapter know it that moves bytes itself, if there is one.
    fn make_known(&self, bulk: &Bulk) {
        let mut known = self.known.lock();
        if known.is_none() && bulk.has_mover() {
            // SAFETY: `drop` has the adapter forget it before it is unmapped.
            *known = Some(unsafe { bulk.make_known(self.memory, BLOCK) });
        }
    }

    fn free(&self) -> MutexGuard<'_, Ranges> {
        self.free.lock()
    }

    fn piece(self: &Arc<Block>, bytes: usize) -> Option<Piece> {
        let offset = self.free().take(bytes)?;
        Some(Piece { block: Arc::clone(self), offset, bytes, lost: AtomicBool::new(false) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        *self.known.get_mut() = None;
        // SAFETY: the mapping is ours, and whoever used it has let go of the block. The driver
        // forgets its registration with the context.
        let _ = unsafe { munmap(self.memory.cast(), BLOCK) };
    }
}

/// Staging memory of one transfer: flags, and slots behind them. Dropped, it is free again.
pub(super) struct Piece {
    block: Arc<Block>,
    offset: usize,
    bytes: usize,
    lost: AtomicBool,
}

impl Piece {
    /// It is for bytes that come and go by these lanes: an adapter may move them itself.
    pub(super) fn for_lanes(self, bulk: &Bulk) -> Piece {
        self.block.make_known(bulk);
        self
    }

    /// Its address.
    pub(super) fn view(&self) -> View {
        let device = self.block.device.offset(self.offset as u64);
        // SAFETY: the piece lies within the block, which stays as long as the piece.
        unsafe { View::new(self.block.memory.add(self.offset), device, self.bytes) }
    }

    pub(super) fn flag(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the piece begins with room for flags, aligned, which are only ever accessed as
        // atomics or by the device, and stays as long as this is borrowed.
        unsafe { AtomicU32::from_ptr(self.view().flag(index).as_ptr()) }
    }

    /// The device may go on to use the piece: nobody else ever will.
    pub(super) fn leak(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

/// Where a transfer's flags and slots are. Whoever uses it sees to it that they stay there.
#[derive(Clone, Copy)]
pub(super) struct View {
    memory: *mut u8,
    /// By which the device knows `memory`.
    device: DevicePtr,
    slots: *mut u8,
    /// Bytes of the slots.
    bytes: usize,
}

// SAFETY: plain memory; flags are accessed as atomics, and slots belong to one side at a time by
// the flags.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// # Safety
    /// `memory` begins a page of `bytes` of memory that stays as long as this or a copy of it is
    /// used, and that the device knows as `device`.
    pub(super) unsafe fn new(memory: *mut u8, device: DevicePtr, bytes: usize) -> View {
        // SAFETY: the memory begins with flags.
        let slots = unsafe { memory.add(FLAGS) };
        View { memory, device, slots, bytes: bytes - FLAGS }
    }

    /// One whose slots are not behind its flags.
    ///
    /// # Safety
    /// As of [`View::new`], of [`FLAGS`] bytes at `memory` and of `bytes` at `slots`.
    pub(super) unsafe fn apart(
        (memory, device): (*mut u8, DevicePtr),
        (slots, bytes): (*mut u8, usize),
    ) -> View {
        View { memory, device, slots, bytes }
    }

    pub(super) fn flag(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index * 4 < FLAGS);
        // SAFETY: within the room for flags, aligned, and only ever accessed as an atomic or by the
        // device.
        unsafe { AtomicU32::from_ptr(self.memory.add(index * 4).cast()) }
    }

    /// The device's address of a flag.
    pub(super) fn device_flag(&self, index: usize) -> DevicePtr {
        self.device.offset(index as u64 * 4)
    }

    pub(super) fn slot(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.bytes);
        // SAFETY: within the slots: callers ask for those of their transfer, which were counted
        // when the memory was taken.
        unsafe { self.slots.add(offset) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.lost.load(Ordering::Acquire) {
            // The mapping must stay as well.
            std::mem::forget(Arc::clone(&self.block));
        } else {
            self.block.free().give_back(self.offset, self.bytes);
        }
    }
}

/// A stream of the current context whose work goes before that of others.
fn urgent_stream(table: &Table) -> Result<Handle<outboard_abi::CUstream_st>, CUresult> {
    let (mut least, mut greatest) = (0, 0);
    call!(table, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest))?;
    new_stream(table, greatest)
}

fn new_stream(table: &Table, priority: i32) -> Result<Handle<outboard_abi::CUstream_st>, CUresult> {
    let (mut stream, flags): (CUstream, _) =
        (core::ptr::null_mut(), CUstream_flags::CU_STREAM_NON_BLOCKING.0);
    call!(table, cuStreamCreateWithPriority(&raw mut stream, flags, priority))?;
    Ok(Handle::new(stream))
}

/// The staging memory of one context.
pub(crate) struct Pool {
    account: Arc<Account>,
    state: Mutex<PoolState>,
    /// Told when a block that was made ahead is there, or will not be.
    warmed: Condvar,
    /// The context is gone: its streams do not move any more.
    closed: AtomicBool,
}

/// The right and duty to make a pool's first block; a caller that needs memory meanwhile waits
/// until this is dropped.
pub(crate) struct Warming(Arc<Pool>);

impl Warming {
    /// Makes the block. The context is current.
    pub(crate) fn run(self, table: &Table) {
        // If that fails, the first copy tries again and says so.
        if let Ok(block) = Block::new(table, &self.0.account) {
            self.0.state().blocks.push(block);
        }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        self.0.state().warming = false;
        self.0.warmed.notify_all();
    }
}

/// Operations that a stream holds at most for copies whose turn has not come. NVIDIA's driver has a
/// caller wait whose stream holds 1,020 calls of almost any kind.
const MAX_OPERATIONS: usize = 256;

/// Operations that a stream holds for a copy, while this lives.
pub(super) struct ReservedOperations {
    pool: Arc<Pool>,
    stream: usize,
    operations: usize,
}

impl Drop for ReservedOperations {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        if let Entry::Occupied(mut held) = state.held.entry(self.stream) {
            *held.get_mut() -= self.operations;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

#[derive(Default)]
struct PoolState {
    /// Operations that streams hold for copies.
    held: HashMap<usize, usize>,
    blocks: Vec<Arc<Block>>,
    warming: bool,
    /// Of streams that have had copies which were started later.
    lines: HashMap<usize, Arc<Line>>,
    /// Of streams that the program has destroyed since.
    left: Vec<Arc<Line>>,
    /// For copies that waited for memory: to the host, and to the device.
    own: [Option<Handle<outboard_abi::CUstream_st>>; 2],
    /// Streams for one copy each that none uses at the moment, and how many are in use.
    exclusive: Vec<Handle<outboard_abi::CUstream_st>>,
    exclusive_in_use: usize,
    /// Streams of copies from and to files that none uses at the moment.
    for_files: Vec<Handle<outboard_abi::CUstream_st>>,
}

impl Pool {
    pub(crate) fn new(account: &Arc<Account>) -> Arc<Pool> {
        let (state, warmed, closed) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        let pool = Arc::new(Pool { account: Arc::clone(account), state, warmed, closed });
        account.add_pool(&pool);
        pool
    }

    /// The session's account.
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// How a copy in a stream is best divided, and what the stream then holds for it. `None` if it
    /// holds enough already.
    pub(super) fn reserve_operations(
        self: &Arc<Pool>,
        stream: CUstream,
        cut: Cut,
    ) -> Option<(Groups, ReservedOperations)> {
        let holds = self.state().held.contains_key(&(stream as usize));
        let groups = if holds { Groups::waiting(cut) } else { Groups::new(cut) };
        Some((groups, self.reserve(stream, groups.operations())?))
    }

    /// Operations that a stream is to hold for a copy. `None` if it holds enough already.
    pub(super) fn reserve(
        self: &Arc<Pool>,
        stream: CUstream,
        operations: usize,
    ) -> Option<ReservedOperations> {
        let stream = stream as usize;
        let mut state = self.state();
        let held = state.held.entry(stream).or_default();
        if *held > 0 && *held + operations > MAX_OPERATIONS {
            return None;
        }
        *held += operations;
        Some(ReservedOperations { pool: Arc::clone(self), stream, operations })
    }

    /// A stream that copies of one direction that waited for memory use and nothing else, before
    /// others: what they wait for must not be behind them. It ends with the context, which is
    /// current.
    pub(crate) fn shared_copy_stream(
        &self,
        table: &Table,
        to_device: bool,
    ) -> Result<Handle<outboard_abi::CUstream_st>, CUresult> {
        let mut state = self.state();
        let own = &mut state.own[usize::from(to_device)];
        if let Some(own) = own {
            return Ok(*own);
        }
        Ok(*own.insert(urgent_stream(table)?))
    }

    /// A stream that only the caller uses, until it is [returned](Pool::return_exclusive). `None`
    /// if `most` are in use. The context is current.
    pub(super) fn exclusive_stream(
        &self,
        table: &Table,
        most: usize,
    ) -> Result<Option<Handle<outboard_abi::CUstream_st>>, CUresult> {
        let free = {
            let mut state = self.state();
            if state.exclusive_in_use >= most {
                return Ok(None);
            }
            state.exclusive_in_use += 1;
            state.exclusive.pop()
        };
        // Not an urgent one: what stands still there would go before the work that it waits for.
        let stream = free.map_or_else(|| new_stream(table, 0), Ok);
        stream.inspect_err(|_| self.state().exclusive_in_use -= 1).map(Some)
    }

    /// Nobody uses such a stream any more. `None` if there is still work in it.
    pub(super) fn return_exclusive(&self, stream: Option<Handle<outboard_abi::CUstream_st>>) {
        let mut state = self.state();
        state.exclusive_in_use -= 1;
        state.exclusive.extend(stream);
    }

    /// A stream for a copy from or to a file, until it is returned empty. The context is current.
    pub(super) fn file_stream(
        &self,
        table: &Table,
    ) -> Result<Handle<outboard_abi::CUstream_st>, CUresult> {
        let free = self.state().for_files.pop();
        free.map_or_else(|| new_stream(table, 0), Ok)
    }

    /// Nobody uses it any more.
    pub(super) fn return_file_stream(&self, stream: Handle<outboard_abi::CUstream_st>) {
        self.state().for_files.push(stream);
    }

    /// The line of a stream of this context, which is current.
    pub(super) fn line(&self, site: &CopySite<'_>) -> Result<Arc<Line>, CUresult> {
        let stream = site.stream as usize;
        if let Some(line) = self.state().lines.get(&stream) {
            return Ok(Arc::clone(line));
        }
        let line = Line::new(site, self.take(site.table, 0)?);
        self.state().lines.insert(stream, Arc::clone(&line));
        Ok(line)
    }

    /// The program is about to destroy a stream.
    pub(crate) fn stream_destroyed(&self, table: &Table, stream: CUstream) {
        let Some(line) = self.state().lines.remove(&(stream as usize)) else { return };
        // This call waits if the stream is full, and the watcher needs the state meanwhile.
        line.stream_destroyed(table);
        let mut state = self.state();
        state.left.retain(|line| !line.has_passed_all());
        state.left.push(line);
    }

    /// Releases unused blocks. A context is current.
    pub(super) fn release_unused(&self, table: &Table) {
        {
            let mut state = self.state();
            state.left.retain(|line| !line.has_passed_all());
            state.lines.retain(|_, line| !line.is_idle(table));
        }
        let unused: Vec<_> =
            self.state().blocks.extract_if(.., |block| Arc::strong_count(block) == 1).collect();
        for block in unused {
            if call!(table, cuMemHostUnregister(block.memory.cast())).is_err() {
                // The device may still know it.
                std::mem::forget(block);
            }
        }
    }

    /// The context is about to go.
    pub(crate) fn close(&self, table: &Table) {
        self.closed.store(true, Ordering::Release);
        let mut state = self.when_warm();
        state.blocks.clear();
        state.lines.drain().for_each(|(_, line)| line.close(table));
        state.left.drain(..).filter(|line| !line.has_passed_all()).for_each(|line| line.leak());
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }

    /// Makes the first block on another thread, unless it exists or is being made.
    pub(crate) fn warming(self: &Arc<Pool>) -> Option<Warming> {
        let mut state = self.state();
        if !state.blocks.is_empty() || state.warming || self.is_closed() {
            return None;
        }
        state.warming = true;
        Some(Warming(Arc::clone(self)))
    }

    /// The state, once no block is being made ahead.
    fn when_warm(&self) -> MutexGuard<'_, PoolState> {
        let mut state = self.state();
        while state.warming {
            self.warmed.wait(&mut state);
        }
        state
    }

    /// A piece with room for `bytes` of slots, its flags cleared. The context is current.
    pub(super) fn take(&self, table: &Table, bytes: usize) -> Result<Piece, CUresult> {
        let bytes = FLAGS + bytes;
        if bytes > BLOCK {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let found = self.when_warm().blocks.iter().find_map(|block| block.piece(bytes));
        let piece = match found {
            Some(piece) => piece,
            None => {
                // Not under the lock: others may have to give blocks back.
                let block = Block::new(table, &self.account)?;
                let piece = block.piece(bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
                self.state().blocks.push(block);
                piece
            }
        };
        for index in 0..FLAGS / 4 {
            piece.view().flag(index).store(0, Ordering::Relaxed);
        }
        Ok(piece)
    }
}
