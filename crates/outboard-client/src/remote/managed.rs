//! Memory that host and device both touch: mapped and managed of a server. The pager moves its bytes; here is what it moves them with, and
//! what tells it of the program's calls.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use outboard_abi::CUresult;
use outboard_front::backend::{Backend, ContextId, CopyMode, Managed, Rect, Result, Stream};
use outboard_wire::limits::MAX_INLINE;
use outboard_wire::messages as msg;

use super::{Remote, wire};
use crate::host::Pinned;
use crate::pager::{Done, Home, Kind, PAGE, Store, Tracked};
use crate::session::Session;
use crate::slabs::{Freed, SLAB, SMALL};

/// `CU_STREAM_NON_BLOCKING` and `CU_EVENT_DISABLE_TIMING`.
const NON_BLOCKING: u32 = 1;
const NO_TIMING: u32 = 2;
/// Bytes of mapped memory that travel in one message.
const PIECE: usize = 1 << 20;
/// How often the device is asked for memory at addresses that nothing has here.
const TRIES: usize = 8;

/// The pager's own stream and event in a context: names that the front never gives.
fn own_stream(ctx: ContextId) -> u64 {
    1 << 63 | u64::from(ctx.0)
}

fn own_event(ctx: ContextId) -> u64 {
    1 << 62 | u64::from(ctx.0)
}

/// A copy between host and device.
#[derive(Clone, Copy)]
pub(super) struct HostCopy {
    pub(super) ctx: ContextId,
    pub(super) stream: Stream,
    pub(super) to_device: bool,
    pub(super) device: u64,
    pub(super) host: u64,
    pub(super) bytes: u64,
    pub(super) mode: CopyMode,
}

fn row(bytes: u64) -> Rect {
    Rect { width: bytes, height: 1, dst_pitch: bytes, src_pitch: bytes }
}

/// The bytes of page-locked memory that the device is given: memory that was allocated here lies on pages of its own.
fn extent(base: u64, pinned: &Pinned) -> Range<u64> {
    let end = base + pinned.bytes;
    base..if pinned.registered { end } else { end.next_multiple_of(PAGE) }
}

/// Moves the pager's bytes over the session. Managed memory moves in a stream of its own, which no other work holds up.
pub(super) struct Mover {
    /// The contexts that have that stream.
    ready: Mutex<BTreeSet<ContextId>>,
}

pub(super) static MOVER: Mover = Mover { ready: Mutex::new(BTreeSet::new()) };

impl Mover {
    fn session(&self) -> Result<&'static Arc<Session>> {
        super::REMOTE.session()
    }

    /// The stream for managed memory of a context.
    fn stream(&self, ctx: ContextId) -> Result<u64> {
        let (stream, event) = (own_stream(ctx), own_event(ctx));
        // A context's name is never used again, so that neither is this.
        if self.ready.lock().unwrap_or_else(PoisonError::into_inner).insert(ctx) {
            self.session()?.post(ctx, &msg::StreamCreate { stream, flags: NON_BLOCKING, priority: 0 })?;
            self.session()?.post(ctx, &msg::EventCreate { event, flags: NO_TIMING })?;
        }
        Ok(stream)
    }
}

impl Store for &'static Mover {
    unsafe fn fetch(&self, home: Home, address: u64, to: *mut u8, bytes: usize) -> Result<()> {
        let most = match home.kind {
            Kind::Managed if bytes > MAX_INLINE => {
                let stream = self.stream(home.ctx)?;
                // SAFETY: by the trait's contract.
                return unsafe { self.session()?.bring(home.ctx, to, address, bytes as u64, stream) };
            }
            Kind::Managed => MAX_INLINE,
            Kind::Mapped => PIECE,
        };
        for at in (0..bytes).step_by(most) {
            let (src, bytes) = (address + at as u64, most.min(bytes - at));
            let put = |data: &[u8]| {
                let fits = data.len() == bytes;
                if fits {
                    // SAFETY: by the trait's contract, and the lengths agree.
                    unsafe { to.add(at).copy_from_nonoverlapping(data.as_ptr(), bytes) };
                }
                if fits { Ok(()) } else { Err(CUresult::CUDA_ERROR_UNKNOWN) }
            };
            match home.kind {
                Kind::Managed => {
                    let message = msg::CopyOut { src, stream: self.stream(home.ctx)?, bytes: bytes as u32 };
                    self.session()?.ask(home.ctx, &message, |reply| put(reply.data))??;
                }
                Kind::Mapped => {
                    let message = msg::MappedRead { address: src, bytes: bytes as u32 };
                    self.session()?.ask(home.ctx, &message, |reply| put(reply.data))??;
                }
            }
        }
        Ok(())
    }

    unsafe fn push(&self, home: Home, address: u64, from: *const u8, bytes: usize) -> Result<()> {
        if home.kind == Kind::Managed {
            let (session, stream) = (self.session()?, self.stream(home.ctx)?);
            // SAFETY: by the trait's contract.
            return unsafe {
                session.copy_to_device(home.ctx, address, from, bytes as u64, stream, CopyMode::Pageable)
            };
        }
        // SAFETY: by the trait's contract.
        let data = unsafe { std::slice::from_raw_parts(from, bytes) };
        for (index, data) in data.chunks(PIECE).enumerate() {
            let address = address + (index * PIECE) as u64;
            self.session()?.post(home.ctx, &msg::MappedWrite { address, mask: &[], data })?;
        }
        Ok(())
    }

    fn patch(&self, home: Home, address: u64, mask: &[u8], data: &[u8]) -> Result<()> {
        self.session()?.post(home.ctx, &msg::MappedWrite { address, mask, data })
    }

    fn settle(&self, home: ContextId) -> Result<()> {
        let message = msg::StreamSynchronize { stream: self.stream(home)? };
        self.session()?.ask(home, &message, |_| ())
    }

    fn join(&self, home: ContextId, ctx: ContextId, stream: u64) -> Result<()> {
        let (from, event) = (self.stream(home)?, own_event(home));
        self.session()?.post(home, &msg::EventRecord { event, stream: from, flags: 0 })?;
        self.session()?.post(ctx, &msg::StreamWaitEvent { stream, event, flags: 0 })
    }
}

/// Runs a function of the program that a stream calls: it sees what the work before it has written, and the work behind it sees what it
/// writes.
pub(crate) fn with_shared_memory<T>(run: impl FnOnce() -> T) -> T {
    let pager = &super::REMOTE.pager;
    if !pager.is_active() {
        return run();
    }
    pager.before_function();
    let result = run();
    pager.after_function();
    result
}

impl Remote {
    /// Queues work of the device that may use memory which the program touches too.
    #[inline]
    pub(super) fn work(&self, ctx: ContextId, stream: Stream, queue: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.pager.is_active() {
            return queue();
        }
        self.pager.before_work(ctx, wire(stream))?;
        queue()?;
        self.pager.after_work(ctx, wire(stream));
        Ok(())
    }

    /// Waits for work of the device.
    #[inline]
    pub(super) fn waited<T>(&self, done: Done, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.pager.is_active() {
            return wait();
        }
        let latest = self.pager.before_wait();
        let result = wait()?;
        self.pager.after_wait(done, latest);
        Ok(result)
    }

    /// Page-locked memory among the parameters of a launch becomes mapped, unless it is.
    #[inline]
    pub(super) fn map_parameters(&self, ctx: ContextId, params: &[u8]) -> Result<()> {
        if !self.host.is_in_use() {
            return Ok(());
        }
        for word in params.as_chunks::<8>().0 {
            let address = u64::from_ne_bytes(*word);
            if self.host.may_contain(address) {
                self.map_host(ctx, address)?;
            }
        }
        Ok(())
    }

    /// Gives the device the page-locked memory at an address, if there is any; whether there is.
    pub(super) fn map_host(&self, ctx: ContextId, address: u64) -> Result<bool> {
        let known = |pinned: Option<(u64, Pinned)>| pinned.filter(|(_, pinned)| pinned.mapped.is_none());
        let found = self.host.find(address);
        if found.is_some_and(|(_, pinned)| pinned.mapped.is_some()) {
            return Ok(true);
        }
        let _one_at_a_time = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((base, pinned)) = known(self.host.find(address)) else { return Ok(found.is_some()) };
        let session = self.session()?;
        // Copies under way reach the memory as it is now.
        session.finish_copies(base as *const u8, pinned.bytes as usize);
        let range = extent(base, &pinned);
        let bytes = range.end - range.start;
        self.call(ctx, &msg::MappedOpen { address: base, bytes }, |_| ())?;
        // SAFETY: page-locked memory stays until it is freed or unregistered, which `unmap_host` comes before.
        if let Err(error) = unsafe { super::REMOTE.pager.add_mapped(ctx, range, pinned.registered) } {
            let _ = self.call(ctx, &msg::MappedClose { address: base, bytes }, |_| ());
            return Err(error);
        }
        self.host.set_mapped(base, Some(ctx));
        Ok(true)
    }

    /// Takes page-locked memory back from the device, with what it has written if the program keeps it.
    pub(super) fn unmap_host(&self, base: u64, keep: bool) {
        let Some((start, pinned)) = self.host.find(base).filter(|(start, _)| *start == base) else { return };
        let Some(ctx) = pinned.mapped else { return };
        let range = extent(start, &pinned);
        if !pinned.shared {
            self.pager.remove(&range, keep);
        }
        self.host.set_mapped(base, None);
        // The context may be gone or faulted; then so is the memory there.
        let _ = self.call(ctx, &msg::MappedClose { address: base, bytes: range.end - range.start }, |_| ());
    }

    /// A context is about to end.
    pub(super) fn end_shared_memory(&self, ctx: ContextId) {
        for range in self.host.mapped_in(ctx) {
            self.unmap_host(range.start, true);
        }
        self.pager.remove_context(ctx);
        self.slabs.lock().unwrap_or_else(PoisonError::into_inner).forget(ctx);
    }

    /// How much of a range the program and the device both use.
    pub(super) fn tracked(&self, address: u64, bytes: u64) -> Tracked {
        self.pager.tracks(&(address..address.saturating_add(bytes)))
    }

    /// Whether any of these addresses is the program's to touch, too.
    #[inline]
    pub(super) fn is_tracked(&self, address: u64, bytes: u64) -> bool {
        self.pager.is_active() && self.tracked(address, bytes) != Tracked::None
    }

    /// A copy between host and device while there is tracked memory; `plain` is the copy where none is.
    ///
    /// # Safety
    /// The host memory is valid as for `Backend::copy_to_device` or `Backend::copy_to_host`.
    pub(super) unsafe fn copy_shared(&self, copy: &HostCopy, plain: impl FnOnce() -> Result<()>) -> Result<()> {
        let HostCopy { ctx, stream, to_device, device, host, bytes, mode } = *copy;
        let tracked = self.tracked(host, bytes);
        if tracked == Tracked::None && !self.is_tracked(device, bytes) {
            if to_device {
                plain()?;
                // Natively, such a copy waits for the work before it.
                let waits = mode == CopyMode::Synchronous && self.pager.is_busy();
                return if waits { self.stream_synchronize(ctx, stream) } else { Ok(()) };
            }
            let done = Done::Stream((ctx.0, wire(stream)));
            return if mode == CopyMode::Pinned { plain() } else { self.waited(done, plain) };
        }
        let (dst, src) = if to_device { (device, host) } else { (host, device) };
        self.work(ctx, stream, || match tracked {
            Tracked::None => plain(),
            Tracked::All => self.post_copy(ctx, dst, src, row(bytes), stream),
            // SAFETY: by the contract above.
            Tracked::Some => unsafe { self.copy_piecemeal(copy) },
        })?;
        if mode == CopyMode::Pinned { Ok(()) } else { self.stream_synchronize(ctx, stream) }
    }

    /// A copy whose host side is tracked in part. The bytes are touched here, where no lock is held.
    ///
    /// # Safety
    /// As of [`Remote::copy_shared`].
    unsafe fn copy_piecemeal(&self, copy: &HostCopy) -> Result<()> {
        let HostCopy { ctx, stream, to_device, device, host, bytes, .. } = *copy;
        let (session, stream, mode, len) = (self.session()?, wire(stream), CopyMode::Synchronous, bytes as usize);
        // SAFETY: by the contract above, and the bytes of the vectors.
        unsafe {
            if to_device {
                let data = std::slice::from_raw_parts(host as *const u8, len).to_vec();
                return session.copy_to_device(ctx, device, data.as_ptr(), bytes, stream, mode);
            }
            let mut data = vec![0; len];
            session.copy_to_host(ctx, data.as_mut_ptr(), device, bytes, stream, mode)?;
            (host as *mut u8).copy_from_nonoverlapping(data.as_ptr(), len);
        }
        Ok(())
    }

    /// Takes a variable of a module in.
    pub(super) fn add_variable(&self, ctx: ContextId, module: u64, range: Range<u64>) -> Result<()> {
        let mut variables = self.variables.lock().unwrap_or_else(PoisonError::into_inner);
        let of_module = variables.entry(module).or_default();
        if !of_module.contains(&range) {
            super::REMOTE.pager.add_variable(ctx, range.clone())?;
            of_module.push(range);
        }
        Ok(())
    }

    /// A module is about to be unloaded.
    pub(super) fn end_variables(&self, module: u64) {
        let gone = self.variables.lock().unwrap_or_else(PoisonError::into_inner).remove(&module);
        for range in gone.unwrap_or_default() {
            self.pager.remove(&(range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE)), false);
        }
    }

    /// Managed memory of the device at addresses that nothing has here: its address there, and the pages.
    fn managed_block(&self, ctx: ContextId, bytes: u64, room: u64, shared: bool) -> Result<(u64, Range<u64>)> {
        let mut useless = Vec::new();
        let mut found = Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let mut ask = room.max(bytes);
        for _ in 0..TRIES {
            let device = match self.call(ctx, &msg::ManagedAlloc { bytes: ask }, |reply| reply.address) {
                Ok(device) => device,
                Err(error) => {
                    found = Err(error);
                    break;
                }
            };
            let base = device.next_multiple_of(PAGE);
            let range = base..base + bytes;
            if range.end > device + ask {
                // Not on a page's start: there must be room to find one. Both at once may be more than the device has.
                ask = bytes + PAGE;
                self.call(ctx, &msg::MemoryFree { address: device }, |_| ())?;
                continue;
            }
            match super::REMOTE.pager.add_managed(ctx, base, bytes as usize, true, (!shared).then(|| range.clone())) {
                Ok(true) => {
                    found = Ok((device, range));
                    break;
                }
                Ok(false) => useless.push(device),
                Err(error) => {
                    useless.push(device);
                    found = Err(error);
                    break;
                }
            }
        }
        for address in useless {
            let _ = self.call(ctx, &msg::MemoryFree { address }, |_| ());
        }
        let (device, range) = found?;
        // As the program sees it: zeros.
        let (dst, width) = (range.start, range.end - range.start);
        let stream = MOVER.stream(ctx)?;
        self.post(ctx, &msg::Fill { dst, pitch: 0, value: 0, element: 1, width, height: 1, stream })?;
        Ok((device, range))
    }
}

impl Managed for Remote {
    fn managed_alloc(&self, ctx: ContextId, bytes: u64) -> Result<u64> {
        let mut slabs = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > SMALL {
            let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            let (device, range) = self.managed_block(ctx, bytes, bytes, false)?;
            slabs.add(ctx, device, &range, false);
            return Ok(range.start);
        }
        let pages = bytes.next_multiple_of(PAGE);
        if let Some(address) = slabs.take(ctx, bytes) {
            self.pager.allocate(address..address + pages);
            return Ok(address);
        }
        let (device, range) = self.managed_block(ctx, SLAB - PAGE, SLAB, true)?;
        slabs.add(ctx, device, &range, true);
        let address = slabs.take(ctx, bytes).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        self.pager.allocate(address..address + pages);
        Ok(address)
    }

    fn managed_free(&self, ctx: ContextId, address: u64) -> Result<()> {
        // Work that is queued may use it.
        let waited = self.waited(Done::Context(ctx), || self.call(ctx, &msg::ContextSynchronize {}, |_| ()));
        let mut slabs = self.slabs.lock().unwrap_or_else(PoisonError::into_inner);
        match slabs.free(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? {
            Freed::Block(address, range) => {
                self.pager.remove(&range, false);
                waited.and(self.call(ctx, &msg::MemoryFree { address }, |_| ()))
            }
            Freed::Part(range) => {
                self.pager.refresh(&range);
                waited
            }
        }
    }

    fn managed_prefetch(&self, ctx: ContextId, address: u64, bytes: u64, to_host: bool, stream: Stream) -> Result<()> {
        if !self.pager.is_active() {
            return Ok(());
        }
        if to_host {
            self.pager.want(ctx, wire(stream), address..address + bytes);
            return Ok(());
        }
        // What the program has written is on its way from now on, not from the next launch on.
        self.pager.before_work(ctx, wire(stream))
    }
}
