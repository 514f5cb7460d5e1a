//! The process's session with its server.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, CopyMode, HostCall, Result};
use outboard_front::{fault, profile};
use outboard_transport::{Any, Patience};
use outboard_wire::graph::NodeParams;
use outboard_wire::handshake::{Extensions, Hello, Purpose, RefusalCode, TRACE, TraceParent, VERSION};
use outboard_wire::limits::MAX_INLINE;
use outboard_wire::messages as msg;
use outboard_wire::notice::{COPIED, ENDED, ERRORS, FAILURE, Failure, KERNELS, OUTPUT, REQUEST};
use outboard_wire::platform::Platform;
use outboard_wire::request::Request;
use outboard_wire::{Code, Reader};

use crate::copies::{Aside, Copies};
use crate::graphs::GraphHosts;
use crate::host_calls::HostFunctions;
use crate::kernels::KnownKernels;
use crate::late::LateCopies;
use crate::link::bulk::Direction::{Down, Up};
use crate::link::bulk::Place;
use crate::link::{Config, ConnectError, Expectation, Link, LinkError, NoticeHandler, Reply, Sent, Ticket, Upload};
use crate::progress::Progress;
use crate::requests::{Answerer, Requests};
use crate::reuse::{Block, Reuse};
use crate::staged::HostCopy;
use crate::target::{Target, VARIABLE};

/// What every call returns once the connection is gone: "CUDA-capable device(s) is/are busy or unavailable".
pub const LOST: CUresult = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;

/// The connection, and what has come over it unasked.
#[derive(Debug)]
pub(crate) struct Session {
    link: Link,
    pending: Arc<Pending>,
    copies: Arc<Copies>,
    requests: Arc<Requests>,
    functions: Arc<HostFunctions>,
    late: Arc<LateCopies>,
    graphs: Arc<GraphHosts>,
    upload: Mutex<()>,
    progress: Progress,
    reuse: Reuse,
    images: ImageCounters,
    kernels: Arc<KnownKernels>,
    device: String,
    server: String,
    started: Instant,
}

/// What became of the images that the program loaded.
#[derive(Debug, Default)]
pub(crate) struct ImageCounters {
    /// Loads of an image that the server had.
    pub(crate) known: AtomicU64,
    /// Loads of an image of which something was sent, and its bytes.
    pub(crate) sent: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Whether the server has said that it keeps no images.
    pub(crate) not_kept: AtomicBool,
}

/// The failure of a posted command that nobody has been told of; 0 for none.
#[derive(Debug, Default)]
struct Pending(AtomicU32);

impl Session {
    /// Connects to the server that the environment names.
    pub(crate) fn open() -> Result<(Arc<Session>, Platform)> {
        connect().map_err(|error| {
            explain(&error);
            match error {
                OpenError::Connect(ConnectError::Refused { refusal, .. }) if refusal.code == RefusalCode::NoDevice => {
                    CUresult::CUDA_ERROR_NO_DEVICE
                }
                // Without a server named, this is a machine without a GPU like any other.
                OpenError::Connect(ConnectError::Unreachable { .. }) if std::env::var_os(VARIABLE).is_none() => {
                    CUresult::CUDA_ERROR_NO_DEVICE
                }
                _ => CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
            }
        })
    }

    /// Queues a command, which may put work into any stream.
    #[inline]
    pub(crate) fn post<M: msg::Message>(&self, ctx: ContextId, message: &M) -> Result<()> {
        self.progress.posted(self.post_numbered(ctx, message)?);
        Ok(())
    }

    /// Queues a command that puts work into a stream and into no other.
    #[inline]
    pub(crate) fn post_to<M: msg::Message>(&self, ctx: ContextId, stream: u64, message: &M) -> Result<()> {
        self.progress.posted_to(stream, self.post_numbered(ctx, message)?);
        Ok(())
    }

    /// Queues a command; whoever calls this notes what work it is.
    #[inline]
    pub(crate) fn post_numbered<M: msg::Message>(&self, ctx: ContextId, message: &M) -> Result<u64> {
        self.link.post(M::OP, ctx.0, |writer| message.encode(writer)).map_err(|error| failed(&error))
    }

    /// Sends a command, which may put work into any stream, and waits for its answer. What it returns is the command's own outcome: a caller that was
    /// told of another command's failure would not know what this one has done.
    pub(crate) fn call<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<Vec<u8>> {
        let reply = self.exchange(ctx, message)?;
        self.progress.posted(reply.seq);
        self.finish(reply).map(|(_, payload)| payload)
    }

    /// As [`Session::call`], for a command that leaves no work in any stream. Also returns its number.
    pub(crate) fn call_idle<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<(u64, Vec<u8>)> {
        let reply = self.exchange(ctx, message)?;
        self.finish(reply)
    }

    /// As [`Session::call_idle`], for a command that does nothing but wait, or ask. The failure of an earlier posted command that nobody knows of yet comes
    /// back from the first of these that itself succeeds, as CUDA reports such failures.
    pub(crate) fn wait<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<(u64, Vec<u8>)> {
        let answer = self.call_idle(ctx, message)?;
        self.owed().map(|()| answer)
    }

    fn exchange<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<Reply> {
        self.link.call(M::OP, ctx.0, |writer| message.encode(writer)).map_err(|error| failed(&error))
    }

    /// What comes with any answer: bytes of copies, words of kernels.
    fn finish(&self, reply: Reply) -> Result<(u64, Vec<u8>)> {
        profile::stalled(|| self.copies.settle());
        if HAS_UNPRINTED.load(Ordering::Acquire) {
            print_rest();
        }
        match CUresult(reply.status) {
            CUresult::CUDA_SUCCESS => Ok((reply.seq, reply.payload)),
            error => Err(error),
        }
    }

    /// The failure of a posted command that nobody has been told of.
    fn owed(&self) -> Result<()> {
        match self.pending.0.swap(0, Ordering::AcqRel) {
            0 => Ok(()),
            earlier => Err(CUresult(earlier)),
        }
    }

    /// What a wait returns whose answer is known to be that all is done.
    pub(crate) fn wait_for_nothing(&self) -> Result<()> {
        if !self.link.is_alive() {
            return Err(LOST);
        }
        if HAS_UNPRINTED.load(Ordering::Acquire) {
            print_rest();
        }
        self.owed()
    }

    /// Kernels that the server has told of.
    pub(crate) fn kernels(&self) -> &KnownKernels {
        &self.kernels
    }

    /// Freed memory that is kept.
    pub(crate) fn reuse(&self) -> &Reuse {
        &self.reuse
    }

    /// Frees a block that was kept.
    pub(crate) fn give_back(&self, block: &Block) {
        // Without a connection there is nothing to free.
        let _ = self.free_in_order(block.ctx, block.address, block.stream);
    }

    /// Has the server free stream-ordered memory.
    pub(crate) fn free_in_order(&self, ctx: ContextId, address: u64, stream: u64) -> Result<()> {
        self.reuse.frees(ctx, stream);
        self.post_to(ctx, stream, &msg::MemoryFreeAsync { address, stream })
    }

    /// To be called before a wait for the device: what pools do not hold on to goes back with it.
    #[inline]
    pub(crate) fn before_wait(&self) {
        self.reuse.before_wait(|block| self.give_back(block));
    }

    /// Does what may fail for want of memory: with less that is kept, if need be.
    pub(crate) fn with_memory<T>(&self, allocate: impl Fn() -> Result<T>) -> Result<T> {
        match allocate() {
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) if self.reuse.give_all(|block| self.give_back(block)) => allocate(),
            outcome => outcome,
        }
    }

    /// Whether bytes of copies may be on their way, which a wait must wait for.
    pub(crate) fn copies_under_way(&self) -> bool {
        self.copies.are_under_way()
    }

    /// What is known to be done.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Queues a call of the program's function.
    pub(crate) fn host_call(&self, ctx: ContextId, stream: u64, call: HostCall) -> Result<()> {
        let expected = self.link.expect().map_err(|error| failed(&error))?;
        let always = call.is_always_called();
        let number = self.functions.add(ctx, call, expected);
        self.post_to(ctx, stream, &msg::HostCall { stream, call: number, always })
            .inspect_err(|_| self.functions.remove(number))
    }

    /// What graphs need of this process.
    pub(crate) fn graphs(&self) -> &GraphHosts {
        &self.graphs
    }

    /// Parameters of a graph's node as the worker may know them.
    pub(crate) fn graph_params(&self, params: NodeParams) -> Result<NodeParams> {
        self.graphs.translate(params, || self.link.expect().map_err(|error| failed(&error)))
    }

    /// A context has ended: what was queued in it will not be called.
    pub(crate) fn context_ended(&self, ctx: ContextId) {
        self.progress.context_ended(ctx);
        self.functions.forget(ctx);
        self.late.end(ctx);
        self.requests.end(ctx);
    }

    /// Sends a command and reads its answer, on behalf of no call of the program: whatever that has to be told of stays.
    pub(crate) fn ask<M: msg::Call, T>(
        &self,
        ctx: ContextId,
        message: &M,
        read: impl for<'a> FnOnce(M::Reply<'a>) -> T,
    ) -> Result<T> {
        let reply = self.link.call(M::OP, ctx.0, |writer| message.encode(writer)).map_err(|error| failed(&error))?;
        match CUresult(reply.status) {
            CUresult::CUDA_SUCCESS => {
                Reader::new(&reply.payload).get().map(read).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
            }
            error => Err(error),
        }
    }

    /// Copies device memory to the host, likewise.
    ///
    /// # Safety
    /// `dst` is writable for `bytes`.
    pub(crate) unsafe fn bring(&self, ctx: ContextId, dst: *mut u8, src: u64, bytes: u64, stream: u64) -> Result<()> {
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            // SAFETY: by the contract above; the transfer ends before this returns.
            let ticket = unsafe { self.link.download(dst.add(at as usize), len, self.link.chunk(Down, len)) };
            let ticket = ticket.map_err(|error| failed(&error))?;
            let (transfer, chunk) = (ticket.number(), ticket.chunk());
            self.post(ctx, &msg::CopyOutBulk { src: src + at, stream, bytes: len, transfer, chunk })?;
            self.link.flush().map_err(|error| failed(&error))?;
            profile::waited(|| ticket.wait()).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// Held while the pieces of an image are on their way.
    pub(crate) fn upload(&self) -> MutexGuard<'_, ()> {
        self.upload.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What became of images.
    pub(crate) fn images(&self) -> &ImageCounters {
        &self.images
    }

    /// Waits until no copy reads or writes these bytes of page-locked memory.
    pub(crate) fn finish_copies(&self, memory: *const u8, bytes: usize) {
        // What is posted must be sent for its copies to end.
        profile::stalled(|| {
            let _ = self.link.flush();
            self.copies.wait_for_all(&range(memory, bytes as u64));
        });
    }

    /// # Safety
    /// As of `Backend::copy_to_device`.
    pub(crate) unsafe fn copy_to_device(
        &self,
        ctx: ContextId,
        dst: u64,
        src: *const u8,
        bytes: u64,
        stream: u64,
        mode: CopyMode,
    ) -> Result<()> {
        let host = range(src, bytes);
        if self.source_comes_late(&host, mode) {
            // SAFETY: by the contract above.
            return unsafe { self.copy_to_device_late(ctx, dst, src, bytes, stream) };
        }
        self.settle_source(ctx, &host, stream, mode)?;
        if bytes <= MAX_INLINE as u64 {
            // SAFETY: by the contract above.
            let data = unsafe { std::slice::from_raw_parts(src, bytes as usize) };
            return self.post_to(ctx, stream, &msg::CopyIn { dst, stream, data });
        }
        let copy = HostCopy::linear(Up, dst, Place::from(src), bytes, stream, mode);
        // SAFETY: by the contract above.
        if let Some(copied) = unsafe { self.copy_staged(ctx, &copy) } {
            return copied;
        }
        let mut last = None;
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            let upload = self.link.upload(len, self.link.chunk(Up, len)).map_err(|error| failed(&error))?;
            let (transfer, chunk) = (upload.number(), upload.chunk());
            self.post_to(ctx, stream, &msg::CopyInBulk { dst: dst + at, stream, bytes: len, transfer, chunk })?;
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
            unsafe {
                let from = src.add(at as usize);
                last = self.send(upload, from.into(), range(from, len), mode)?;
            }
        }
        self.taken(ctx, stream, last)
    }

    /// Sends the bytes of a transfer that has been announced. What is returned is to be waited for when all of the copy has been sent.
    ///
    /// # Safety
    /// The bytes are readable until this returns and what it returns is dropped, or until `finish_copies` if they are page-locked.
    pub(crate) unsafe fn send(
        &self,
        upload: Upload<'_>,
        from: Place,
        host: Range<u64>,
        mode: CopyMode,
    ) -> Result<Option<Sent>> {
        if mode == CopyMode::Pinned {
            // SAFETY: by the contract above.
            self.copies.upload(host, unsafe { upload.send_in_background(from) });
            return Ok(None);
        }
        if mode == CopyMode::Synchronous {
            // SAFETY: by the contract above; what is returned is dropped when the device has the bytes, or after a failure.
            let sent = profile::stalled(|| unsafe { upload.send_and_keep(from) }).map_err(|error| failed(&error))?;
            return Ok(Some(sent));
        }
        // SAFETY: by the contract above.
        let sent = profile::stalled(|| unsafe { upload.send(from) }).map_err(|error| failed(&error))?;
        // The device need not have them.
        drop(sent);
        Ok(None)
    }

    /// Waits until the device has taken the last transfer of a copy, if somebody waits for it. Those before it are in the same stream.
    pub(crate) fn taken(&self, ctx: ContextId, stream: u64, last: Option<Sent>) -> Result<()> {
        match last.map(|last| profile::waited(|| last.wait())) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                // The worker has said why, or will: a fault, or the failure of the copy.
                self.wait(ctx, &msg::StreamSynchronize { stream })?;
                Err(failed(&error))
            }
        }
    }

    /// Sends the bytes at `from` when the worker asks for them; the command that announces the transfer must follow.
    ///
    /// # Safety
    /// The bytes are readable until the transfer has ended.
    pub(crate) unsafe fn send_late(
        &self,
        ctx: ContextId,
        upload: Upload<'_>,
        from: Place,
        host: Range<u64>,
        expected: Expectation,
    ) {
        // SAFETY: by the contract above.
        let (ticket, later) = unsafe { upload.later(from) };
        self.copies.upload(host, ticket);
        self.late.add(ctx, later, expected);
    }

    /// Whether something queued before a copy may still write its source, which nobody may wait for.
    pub(crate) fn source_comes_late(&self, host: &Range<u64>, mode: CopyMode) -> bool {
        mode == CopyMode::Pinned && (self.functions.are_waiting() || self.copies.is_download_under_way(host))
    }

    /// Waits for what may still write the source of a copy whose bytes are read now, and not when the stream comes to it.
    pub(crate) fn settle_source(&self, ctx: ContextId, host: &Range<u64>, stream: u64, mode: CopyMode) -> Result<()> {
        if mode == CopyMode::Synchronous && self.functions.are_waiting() {
            // One of the functions may write what is copied.
            self.wait(ctx, &msg::StreamSynchronize { stream })?;
        }
        profile::stalled(|| self.copies.wait_for_downloads(host));
        Ok(())
    }

    /// A copy from page-locked memory that something before it in the stream may still write.
    ///
    /// # Safety
    /// As of `Backend::copy_to_device`.
    unsafe fn copy_to_device_late(
        &self,
        ctx: ContextId,
        dst: u64,
        src: *const u8,
        bytes: u64,
        stream: u64,
    ) -> Result<()> {
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            let expected = self.link.expect().map_err(|error| failed(&error))?;
            let upload = self.link.upload(len, self.link.chunk(Up, len)).map_err(|error| failed(&error))?;
            let (transfer, chunk) = (upload.number(), upload.chunk());
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`.
            let from = unsafe { src.add(at as usize) };
            // SAFETY: as above.
            unsafe { self.send_late(ctx, upload, from.into(), range(from, len), expected) };
            self.post_to(ctx, stream, &msg::CopyInLate { dst: dst + at, stream, bytes: len, transfer, chunk })?;
        }
        Ok(())
    }

    /// # Safety
    /// As of `Backend::copy_to_host`.
    pub(crate) unsafe fn copy_to_host(
        &self,
        ctx: ContextId,
        dst: *mut u8,
        src: u64,
        bytes: u64,
        stream: u64,
        mode: CopyMode,
    ) -> Result<()> {
        if bytes <= MAX_INLINE as u64 && mode != CopyMode::Pinned {
            let (seq, payload) = self.wait(ctx, &msg::CopyOut { src, stream, bytes: bytes as u32 })?;
            // The answer is what a wait behind the copy would have brought.
            self.progress.stream_done(ctx, stream, seq);
            let reply: msg::CopyOutReply<'_> = Reader::new(&payload).get().map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
            if reply.data.len() as u64 != bytes {
                return Err(CUresult::CUDA_ERROR_UNKNOWN);
            }
            // SAFETY: by the contract above, and the lengths agree.
            unsafe { core::ptr::copy_nonoverlapping(reply.data.as_ptr(), dst, reply.data.len()) };
            return Ok(());
        }
        let copy = HostCopy::linear(Down, src, Place::from(dst), bytes, stream, mode);
        // SAFETY: by the contract above.
        if let Some(copied) = unsafe { self.copy_staged(ctx, &copy) } {
            return copied;
        }
        let mut fetches = Fetches::new(self, ctx, stream, mode, &range(dst, bytes));
        for piece in pieces(bytes, 1) {
            let (at, len) = (piece.start, piece.end - piece.start);
            // SAFETY: `pieces` lie within the copy.
            let to = unsafe { dst.add(at as usize) };
            // SAFETY: by the contract above; page-locked memory stays until `finish_copies`, other memory until `fetches` is gone.
            let fetch = unsafe { fetches.open(Place::from(to), range(to, len), len, self.link.chunk(Down, len)) }?;
            let (transfer, chunk) = (fetch.ticket.number(), fetch.ticket.chunk());
            fetches.start(&msg::CopyOutBulk { src: src + at, stream, bytes: len, transfer, chunk }, fetch)?;
        }
        fetches.finish()
    }

    /// The connection.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Counters as JSON values, by name.
    pub(crate) fn statistics(&self) -> Vec<(&'static str, String)> {
        let stats = self.link.stats();
        let text = |text: &str| format!("\"{}\"", text.replace(['"', '\\'], "'"));
        vec![
            ("server", text(&self.server)),
            ("device", text(&self.device)),
            ("transport", text(self.link.peer().0)),
            ("posted", stats.posted.to_string()),
            ("waited", stats.calls.to_string()),
            ("sends", stats.sends.to_string()),
            ("bytes_to_device", (stats.sent + stats.bulk_sent).to_string()),
            ("bytes_from_device", (stats.received + stats.bulk_received).to_string()),
            ("images_known", self.images.known.load(Ordering::Relaxed).to_string()),
            ("images_sent", self.images.sent.load(Ordering::Relaxed).to_string()),
            ("image_bytes_sent", self.images.bytes.load(Ordering::Relaxed).to_string()),
            ("seconds_waiting", format!("{:.6}", stats.waited.as_secs_f64())),
            ("seconds", format!("{:.6}", self.started.elapsed().as_secs_f64())),
        ]
    }
}

/// The transfers of one copy to the host. While the bytes of one come, the device copies the next. Dropped, it waits: the memory is the program's.
pub(crate) struct Fetches<'a> {
    session: &'a Session,
    ctx: ContextId,
    stream: u64,
    mode: CopyMode,
    under_way: VecDeque<Ticket>,
    /// An earlier copy to the same memory is under way, and this one is not waited for.
    overtakes: bool,
}

/// A transfer that is about to be announced.
pub(crate) struct Fetch {
    pub(crate) ticket: Ticket,
    host: Range<u64>,
    aside: Option<Aside>,
}

impl<'a> Fetches<'a> {
    /// For a copy to the memory at `host`.
    pub(crate) fn new(
        session: &'a Session,
        ctx: ContextId,
        stream: u64,
        mode: CopyMode,
        host: &Range<u64>,
    ) -> Fetches<'a> {
        let overtakes = mode == CopyMode::Pinned && session.copies.is_download_under_way(host);
        Fetches { session, ctx, stream, mode, under_way: VecDeque::new(), overtakes }
    }

    /// Opens a transfer of `len` bytes to `place`, which lies in `host`.
    ///
    /// # Safety
    /// As of [`Link::download`].
    pub(crate) unsafe fn open(&self, place: Place, host: Range<u64>, len: u64, chunk: u32) -> Result<Fetch> {
        let mut aside = self.overtakes.then(|| Aside::new(place, len));
        let to = aside.as_mut().map_or(place, Aside::first);
        // SAFETY: by the contract above; what is put aside lives as long as its ticket.
        let ticket = unsafe { self.session.link.download(to, len, chunk) }.map_err(|error| failed(&error))?;
        Ok(Fetch { ticket, host, aside })
    }

    /// Announces a transfer.
    pub(crate) fn start(&mut self, message: &impl msg::Message, fetch: Fetch) -> Result<()> {
        let Fetch { ticket, host, aside } = fetch;
        if self.mode == CopyMode::Pinned {
            // Known before it is posted: another thread may read at once that the device has done it.
            self.session.copies.download(host, ticket, aside);
            return self.session.post_to(self.ctx, self.stream, message);
        }
        self.session.post_to(self.ctx, self.stream, message)?;
        self.under_way.push_back(ticket);
        self.session.link.flush().map_err(|error| failed(&error))?;
        if self.under_way.len() > 1 { self.wait() } else { Ok(()) }
    }

    /// Waits for the bytes of those under way.
    pub(crate) fn finish(mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Waits for the first one.
    fn wait(&mut self) -> Result<()> {
        let Some(Err(error)) = self.under_way.pop_front().map(|ticket| profile::waited(|| ticket.wait())) else {
            return Ok(());
        };
        // The worker has said why, or will: a fault, or the failure of the copy.
        self.session.wait(self.ctx, &msg::StreamSynchronize { stream: self.stream })?;
        Err(failed(&error))
    }
}

impl Drop for Fetches<'_> {
    fn drop(&mut self) {
        for ticket in &self.under_way {
            let _ = ticket.wait();
        }
    }
}

/// The addresses of some bytes.
pub(crate) fn range(memory: *const u8, bytes: u64) -> Range<u64> {
    memory as u64..memory as u64 + bytes
}

/// Larger copies go as several transfers: each queues a few operations in the stream for each of its chunks, and a stream holds only so many.
const LARGEST_TRANSFER: u64 = 128 << 20;

/// A chunk size for a box: whole rows if they fit, so that each chunk is one copy on the device.
pub(crate) fn chunk_of_rows(suggested: u32, width: u64) -> u32 {
    let rows = u64::from(suggested) / width;
    let fitting = rows * width;
    // Chunks of rows that are nearly as large as a chunk must not be much smaller than what was suggested.
    if rows > 0 && fitting >= 64 << 10 { fitting as u32 } else { suggested }
}

/// The transfers that a copy is made of: of whole rows, if they are not larger than a transfer.
pub(crate) fn pieces(bytes: u64, row: u64) -> impl Iterator<Item = Range<u64>> {
    let largest = if row < LARGEST_TRANSFER { LARGEST_TRANSFER - LARGEST_TRANSFER % row } else { LARGEST_TRANSFER };
    (0..bytes.div_ceil(largest)).map(move |index| index * largest..((index + 1) * largest).min(bytes))
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("{VARIABLE} names no server: {0}")]
    Target(#[from] crate::target::TargetError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the server's description of its devices cannot be read: {0}")]
    Snapshot(#[from] outboard_wire::DecodeError),
}

impl OpenError {
    fn code(&self) -> Code {
        match self {
            OpenError::Target(_) => Code::BadAddress,
            OpenError::Connect(error) => error.code(),
            OpenError::Snapshot(_) => Code::BadSnapshot,
        }
    }
}

fn connect() -> std::result::Result<(Arc<Session>, Platform), OpenError> {
    let (pending, copies) = (Arc::new(Pending::default()), Arc::new(Copies::default()));
    let (functions, late) = (Arc::new(HostFunctions::default()), Arc::new(LateCopies::default()));
    let graphs = Arc::new(GraphHosts::default());
    let answerers: Vec<Arc<dyn Answerer>> = vec![functions.clone(), late.clone(), graphs.clone()];
    let kernels = Arc::new(KnownKernels::default());
    let config = Config::from_env();
    let requests = Requests::new(Patience::new(config.spin, config.lane_spin), Arc::clone(&copies), answerers);
    let notices = {
        let (pending, copies, requests) = (Arc::clone(&pending), Arc::clone(&copies), Arc::clone(&requests));
        let known = Arc::clone(&kernels);
        Box::new(move |code: u16, payload: &[u8]| match code {
            REQUEST => {
                if let Ok(request) = Reader::new(payload).get::<Request<'_>>() {
                    requests.asked(&request);
                }
            }
            KERNELS => {
                if let Ok(told) = Reader::new(payload).get() {
                    known.told(told);
                }
            }
            _ => notice(&pending, &copies, code, payload),
        })
    };
    let (link, platform, server) = open_link(config, notices, |devices| Purpose::Session { devices })?;
    requests.connect(link.answers());
    let device = platform.devices.first().map_or_else(String::new, |device| device.name.clone());
    let images = ImageCounters::default();
    let (upload, progress, reuse, started) = (Mutex::new(()), Progress::default(), Reuse::default(), Instant::now());
    let session = Session {
        link,
        pending,
        copies,
        requests,
        functions,
        late,
        graphs,
        upload,
        progress,
        reuse,
        images,
        kernels,
        device,
        server,
        started,
    };
    Ok((Arc::new(session), platform))
}

/// Connects to the server that the environment names, for a purpose with the devices that it names. Returns what it offers and its address, too.
pub(crate) fn open_link(
    config: Config,
    notices: NoticeHandler,
    purpose: impl FnOnce(Vec<u32>) -> Purpose,
) -> std::result::Result<(Link, Platform, String), OpenError> {
    let target: Target = std::env::var(VARIABLE).as_deref().unwrap_or("localhost").parse()?;
    let hello = Hello {
        version: VERSION,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        client: client_name(),
        purpose: purpose(target.devices.clone()),
        process: crate::process::this(),
        more: more(),
    };
    let server = target.address.to_string();
    let (link, welcome) = Link::connect(&Any, &server, &hello, config, notices)?;
    let mut reader = Reader::new(&welcome.snapshot);
    let platform: Platform = reader.get()?;
    reader.finish()?;
    Ok((link, platform, server))
}

/// The variable of a process that is part of a trace.
const TRACE_VARIABLE: &str = "TRACEPARENT";

/// What is said besides.
fn more() -> Extensions {
    let mut more = Extensions::default();
    let parent = std::env::var(TRACE_VARIABLE).ok();
    if let Some(parent) = parent.as_deref().and_then(TraceParent::parse) {
        more.set(TRACE, &parent);
    }
    more
}

/// Who is calling, for the server's log.
fn client_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned());
    format!("{} ({})", name.unwrap_or_default(), std::process::id())
}

/// A program that uses CUDA expects no words from its driver; who wants them sets `OUTBOARD_LOG`.
pub(crate) fn explain(error: &OpenError) {
    say(error.code(), &error.to_string());
}

fn say(code: Code, sentence: &str) {
    if std::env::var_os("OUTBOARD_LOG").is_some() {
        eprintln!("outboard: {}", code.end(sentence));
    }
}

pub(crate) fn failed(error: &LinkError) -> CUresult {
    match error {
        LinkError::Lost(_) => LOST,
        LinkError::TooLong(_) | LinkError::Transfer(_) => CUresult::CUDA_ERROR_INVALID_VALUE,
        // The command that announced the transfer has failed, and its own error is on its way.
        LinkError::Cancelled => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// Takes what the worker says unasked.
fn notice(pending: &Pending, copies: &Copies, code: u16, payload: &[u8]) {
    match code {
        // SAFETY: C's standard streams, which a program may have closed, but only with undefined results of its own.
        OUTPUT => print(payload, unsafe { stdout }),
        // SAFETY: as above.
        ERRORS => print(payload, unsafe { stderr }),
        ENDED => {
            if let Ok(sentence) = Reader::new(payload).get::<&str>() {
                say(Code::SessionOver, &format!("the session was {sentence}"));
            }
        }
        COPIED => {
            if let Ok(number) = Reader::new(payload).get() {
                copies.copied(number);
            }
        }
        FAILURE => {
            if let Ok(failure) = Reader::new(payload).get::<Failure>() {
                let error = CUresult(failure.status);
                if fault::is_sticky(error) {
                    fault::raise(ContextId(failure.ctx), error);
                } else {
                    let _ = pending.0.compare_exchange(0, error.0, Ordering::AcqRel, Ordering::Acquire);
                }
            }
        }
        // A newer server may say more; none of it is needed.
        _ => {}
    }
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
    fn ftrylockfile(stream: *mut libc::FILE) -> libc::c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// Prints what kernels printed, through the program's own C stream: the order with what the program prints stays as it is natively.
fn print(bytes: &[u8], stream: *mut libc::FILE) {
    let mut unprinted = UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    // A thread of the program may hold the stream while it waits for a page, which this one may have to read: it must not wait in turn.
    // SAFETY: the stream is C's.
    if unsafe { ftrylockfile(stream) } != 0 {
        unprinted.push((Output(stream), bytes.to_vec()));
        HAS_UNPRINTED.store(true, Ordering::Release);
        return;
    }
    let (before, rest) = std::mem::take(&mut *unprinted).into_iter().partition(|(output, _)| output.0 == stream);
    *unprinted = rest;
    HAS_UNPRINTED.store(!unprinted.is_empty(), Ordering::Release);
    let before: Vec<(Output, Vec<u8>)> = before;
    for part in before.iter().map(|(_, part)| part.as_slice()).chain([bytes]) {
        // SAFETY: the bytes are there, and the stream is C's.
        unsafe { libc::fwrite(part.as_ptr().cast(), 1, part.len(), stream) };
    }
    // SAFETY: locked above.
    unsafe { funlockfile(stream) };
}

/// What could not be printed at once, and whether there is any.
static UNPRINTED: Mutex<Vec<(Output, Vec<u8>)>> = Mutex::new(Vec::new());
static HAS_UNPRINTED: AtomicBool = AtomicBool::new(false);

/// One of C's standard streams.
struct Output(*mut libc::FILE);

// SAFETY: C's streams are for all threads.
unsafe impl Send for Output {}

/// Prints what could not be printed when it came, on a thread that holds nothing.
fn print_rest() {
    let rest = std::mem::take(&mut *UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner));
    HAS_UNPRINTED.store(false, Ordering::Release);
    for (Output(stream), bytes) in rest {
        // SAFETY: the bytes are there, and the stream is C's.
        unsafe { libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), stream) };
    }
}
