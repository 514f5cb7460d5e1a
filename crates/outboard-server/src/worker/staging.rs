//! Large copies: page-locked staging slots that the device fills and empties in the application's own stream order.
//!
//! For each chunk three operations are queued in the stream at once, before its bytes are there: wait until the slot is full (or free), copy,
//! mark the slot free (or full). What the application queues behind the copy is ordered behind it by the device; nothing is held back here,
//! and a stream that does not move holds up no other. Lane threads and a watcher per transfer move the bytes meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outboard_abi::{CUcontext, CUresult, CUstream, CUstreamWaitValue_flags, CUstreamWriteValue_flags};
use outboard_driver::{Table, call};
use outboard_session::chunks::Cut;
use outboard_wire::boxes::Extent;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::boxes::{self, Placed};
use super::io::{Bulk, Sink};
use super::objects::Handle;

/// How long a watcher looks at a flag without a pause, and its pauses after that. The last is what an idle stream costs.
const LOOK: Duration = Duration::from_micros(100);
const PAUSE: Duration = Duration::from_micros(50);
const LONG_PAUSE: Duration = Duration::from_millis(1);
/// A watcher that has waited this long pauses longer, and asks now and then whether the stream is still alive.
const PATIENCE: Duration = Duration::from_millis(20);
/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTER: u32 = 3;

/// Staging memory: slots, and two words of flags for each. Mapped here and registered with a context, so that it outlives the context.
struct Buffer {
    memory: *mut u8,
    bytes: usize,
    /// By which the device knows `memory`.
    device: u64,
}

// SAFETY: plain memory; the flags are accessed as atomics, and slots belong to one side at a time by the flags.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// Room for the flags, in front of the slots.
const FLAGS: usize = 64 << 10;

impl Buffer {
    /// Maps and registers a buffer for `bytes` of slots. The context is current.
    fn new(table: &Table, bytes: usize) -> Result<Buffer, CUresult> {
        let bytes = FLAGS + bytes;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            mmap_anonymous(core::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let memory = memory.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let mut buffer = Buffer { memory: memory.cast(), bytes, device: 0 };
        call!(table, cuMemHostRegister_v2(memory, bytes, REGISTER))?;
        call!(table, cuMemHostGetDevicePointer_v2(&raw mut buffer.device, memory, 0))?;
        Ok(buffer)
    }

    fn slots(&self) -> usize {
        self.bytes - FLAGS
    }

    /// A flag: `full` or `free` of a slot.
    fn flag(&self, index: usize) -> &AtomicU32 {
        debug_assert!(index * 4 < FLAGS);
        // SAFETY: within the room for flags, aligned, and only ever accessed as an atomic or by the device.
        unsafe { AtomicU32::from_ptr(self.memory.cast::<u32>().add(index)) }
    }

    fn slot(&self, offset: usize) -> *mut u8 {
        // SAFETY: within the mapping: offsets are those of a cut whose staging fits.
        unsafe { self.memory.add(FLAGS + offset) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and whoever used it has let go of the buffer. The driver forgets its registration with the context.
        let _ = unsafe { munmap(self.memory.cast(), self.bytes) };
    }
}

/// The staging buffers of one context.
pub(crate) struct Pool {
    free: Mutex<Vec<Buffer>>,
    /// The context is gone: its streams do not move any more.
    closed: AtomicBool,
}

impl Pool {
    pub(crate) fn new() -> Arc<Pool> {
        Arc::new(Pool { free: Mutex::default(), closed: AtomicBool::new(false) })
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Buffer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer with flags cleared. The context is current.
    fn take(&self, table: &Table, bytes: usize) -> Result<Buffer, CUresult> {
        let mut free = self.lock();
        // The smallest that fits, lest a small copy holds a large buffer.
        let fitting = (0..free.len()).filter(|i| free[*i].slots() >= bytes).min_by_key(|i| free[*i].slots());
        let buffer = match fitting {
            Some(index) => free.swap_remove(index),
            None => {
                drop(free);
                Buffer::new(table, bytes.next_power_of_two())?
            }
        };
        for index in 0..FLAGS / 4 {
            buffer.flag(index).store(0, Ordering::Relaxed);
        }
        Ok(buffer)
    }

    fn give_back(&self, buffer: Buffer) {
        if !self.closed.load(Ordering::Acquire) {
            self.lock().push(buffer);
        }
    }
}

/// What is common to transfers in both directions.
struct Transfer {
    number: u64,
    cut: Cut,
    bulk: Bulk,
    pool: Arc<Pool>,
    buffer: Option<Buffer>,
    table: &'static Table,
    context: Handle<outboard_abi::CUctx_st>,
    stream: Handle<outboard_abi::CUstream_st>,
}

// SAFETY: handles are names; see `Handle`.
unsafe impl Sync for Transfer {}

impl Transfer {
    fn buffer(&self) -> &Buffer {
        self.buffer.as_ref().unwrap_or_else(|| unreachable!("the buffer leaves with the transfer"))
    }

    /// The slot of a chunk, and how many chunks have used it up to and with this one.
    fn place(&self, index: u32) -> (usize, u32) {
        let window = self.cut.window();
        ((index % window) as usize, index / window + 1)
    }

    fn full(&self, slot: usize) -> usize {
        slot
    }

    fn free(&self, slot: usize) -> usize {
        self.cut.window() as usize + slot
    }

    /// Set when the stream has come to the transfer.
    fn reached(&self) -> usize {
        2 * self.cut.window() as usize
    }

    fn slot(&self, slot: usize) -> *mut u8 {
        self.buffer().slot(slot * self.cut.chunk() as usize)
    }

    /// Queues a wait for a flag of the buffer to reach `value`.
    fn queue_wait(&self, flag: usize, value: u32) -> Result<(), CUresult> {
        let at_least = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_GEQ.0;
        let address = self.buffer().device + flag as u64 * 4;
        call!(self.table, cuStreamWaitValue32_v2(self.stream.get(), address, value, at_least))
    }

    /// Queues setting a flag, behind what was queued before.
    fn queue_set(&self, flag: usize, value: u32) -> Result<(), CUresult> {
        let plain = CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT.0;
        let address = self.buffer().device + flag as u64 * 4;
        call!(self.table, cuStreamWriteValue32_v2(self.stream.get(), address, value, plain))
    }

    /// Waits for the device to set a flag. `false` if it never will.
    fn watch(&self, flag: usize, value: u32) -> bool {
        let flag = self.buffer().flag(flag);
        let reached = || flag.load(Ordering::Acquire) >= value;
        let start = Instant::now();
        let mut asked = start;
        while !reached() {
            let waited = start.elapsed();
            if waited < LOOK {
                std::thread::yield_now();
            } else if waited < PATIENCE {
                std::thread::sleep(PAUSE);
            } else {
                std::thread::sleep(LONG_PAUSE);
                if asked.elapsed() > PATIENCE {
                    asked = Instant::now();
                    if !self.stream_lives() {
                        return reached();
                    }
                }
            }
        }
        true
    }

    fn stream_lives(&self) -> bool {
        if self.pool.closed.load(Ordering::Acquire) {
            return false;
        }
        let outcome = call!(self.table, cuCtxSetCurrent(self.context.get()))
            .and_then(|()| call!(self.table, cuStreamQuery(self.stream.get())));
        matches!(outcome, Ok(()) | Err(CUresult::CUDA_ERROR_NOT_READY))
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(buffer);
        }
    }
}

/// Where a copy runs.
pub(crate) struct Place<'a> {
    pub(crate) table: &'static Table,
    pub(crate) context: CUcontext,
    pub(crate) stream: CUstream,
    pub(crate) pool: &'a Arc<Pool>,
    pub(crate) bulk: &'a Bulk,
}

impl Place<'_> {
    fn transfer(&self, number: u64, cut: Cut) -> Result<Transfer, CUresult> {
        if (2 * cut.window() as usize + 1) * 4 > FLAGS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Transfer {
            number,
            cut,
            bulk: self.bulk.clone(),
            pool: Arc::clone(self.pool),
            buffer: Some(self.pool.take(self.table, cut.staging())?),
            table: self.table,
            context: Handle::new(self.context),
            stream: Handle::new(self.stream),
        })
    }
}

/// What a transfer's bytes go to or come from on the device.
pub(crate) enum Target {
    /// Memory in one piece.
    Linear(u64),
    /// A range of a box's packed bytes, from `from` on.
    Box { region: Placed, extent: Extent, from: u64 },
}

impl Target {
    /// Copies the bytes of a chunk from or to a slot, in the stream.
    fn copy(&self, t: &Transfer, index: u32, to_device: bool) -> Result<(), CUresult> {
        let (slot, _) = t.place(index);
        let (at, len, slot) = (t.cut.offset(index), t.cut.len_of(index) as usize, t.slot(slot));
        let (stream, table) = (t.stream.get(), t.table);
        match self {
            Target::Linear(base) if to_device => {
                call!(table, cuMemcpyHtoDAsync_v2(base + at, slot.cast(), len, stream))
            }
            Target::Linear(base) => call!(table, cuMemcpyDtoHAsync_v2(slot.cast(), base + at, len, stream)),
            Target::Box { region, extent, from } => {
                let start = from + at;
                extent.parts(start..start + len as u64).try_for_each(|part| {
                    let device = region.part(&part)?;
                    let host = Placed::host(slot as u64 + (part.packed - start), part.extent);
                    let (dst, src) = if to_device { (device, host) } else { (host, device) };
                    boxes::copy(table, &dst, &src, part.extent, stream)
                })
            }
        }
    }
}

/// A copy to the device.
struct In(Transfer);

// SAFETY: a chunk is granted once the device has emptied its slot, or will not touch it any more.
unsafe impl Sink for In {
    fn slot(&self, index: u32, _len: u32) -> *mut u8 {
        self.0.slot(self.0.place(index).0)
    }

    fn filled(&self, index: u32) {
        let (slot, round) = self.0.place(index);
        self.0.buffer().flag(self.0.full(slot)).store(round, Ordering::Release);
    }
}

/// Lets everything that was queued with a transfer's flags pass: queueing it broke off in the middle. The buffer is lost to the pool, since the
/// device may still use it.
fn let_pass(transfer: &mut Transfer) {
    if let Some(buffer) = transfer.buffer.take() {
        for flag in 0..2 * transfer.cut.window() as usize {
            buffer.flag(flag).store(i32::MAX as u32, Ordering::Release);
        }
        std::mem::forget(buffer);
    }
}

/// Queues a copy to the device and starts to take its bytes; the result runs on a thread of its own until the copy is done. It calls `reached`, if
/// that is given, when the stream has come to the copy or will not any more.
pub(crate) fn copy_in<F: FnOnce() + Send + 'static>(
    place: &Place<'_>,
    number: u64,
    cut: Cut,
    dst: &Target,
    reached: Option<F>,
) -> Result<impl FnOnce() + Send + use<F>, CUresult> {
    let mut transfer = place.transfer(number, cut)?;
    let late = reached.is_some();
    let queue = |t: &Transfer| {
        if late {
            t.queue_set(t.reached(), 1)?;
        }
        (0..cut.count()).try_for_each(|index| {
            let (slot, round) = t.place(index);
            t.queue_wait(t.full(slot), round)?;
            dst.copy(t, index, true)?;
            t.queue_set(t.free(slot), round)
        })
    };
    if let Err(error) = queue(&transfer) {
        let_pass(&mut transfer);
        return Err(error);
    }
    let transfer = Arc::new(In(transfer));
    place
        .bulk
        .receive(number, cut, Arc::clone(&transfer) as Arc<dyn Sink>)
        .map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(move || {
        let t = &transfer.0;
        if let Some(reached) = reached {
            t.watch(t.reached(), 1);
            reached();
        }
        for index in 0..cut.count() {
            let (slot, round) = t.place(index);
            if !t.watch(t.free(slot), round) {
                // The context has a fault: the bytes still come, into slots that nobody reads.
                t.bulk.grant(t.number, cut.count());
                break;
            }
            let granted = index + 1 + cut.window();
            if granted <= cut.count() {
                t.bulk.grant(t.number, granted);
            }
        }
        t.bulk.done(t.number);
    })
}

/// A copy to the host that has been queued.
pub(crate) struct Out(Transfer);

impl Out {
    /// The transfer's number.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }

    /// Whether the device is done with it.
    pub(crate) fn is_copied(&self) -> bool {
        let (slot, round) = self.0.place(self.0.cut.count() - 1);
        self.0.buffer().flag(self.0.full(slot)).load(Ordering::Acquire) >= round
    }
}

/// Queues a copy to the host; `watcher` runs on a thread of its own and sends the bytes as they come.
pub(crate) fn copy_out(
    place: &Place<'_>,
    number: u64,
    cut: Cut,
    src: &Target,
) -> Result<(Arc<Out>, impl FnOnce() + Send + use<>), CUresult> {
    let mut transfer = place.transfer(number, cut)?;
    let queue = |t: &Transfer| {
        (0..cut.count()).try_for_each(|index| {
            let (slot, round) = t.place(index);
            if round > 1 {
                t.queue_wait(t.free(slot), round - 1)?;
            }
            src.copy(t, index, false)?;
            t.queue_set(t.full(slot), round)
        })
    };
    if let Err(error) = queue(&transfer) {
        let_pass(&mut transfer);
        return Err(error);
    }
    let transfer = Arc::new(Out(transfer));
    let out = Arc::clone(&transfer);
    let watcher = move || {
        let t = &transfer.0;
        for index in 0..cut.count() {
            let (slot, round) = t.place(index);
            if !t.watch(t.full(slot), round) {
                return t.bulk.cancel(t.number, index);
            }
            let sent = {
                let transfer = Arc::clone(&transfer);
                move || {
                    let t = &transfer.0;
                    t.buffer().flag(t.free(slot)).store(round, Ordering::Release);
                }
            };
            // SAFETY: the slot is full, and the device writes it again only once `sent` has marked it free; the closure keeps the buffer.
            unsafe { t.bulk.send(t.number, index, t.slot(slot), cut.len_of(index), sent) };
        }
    };
    Ok((out, watcher))
}
