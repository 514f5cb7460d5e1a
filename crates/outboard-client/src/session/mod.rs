//! The process's session with its server.

mod memory;
mod notices;
mod open;
mod output;
mod postponed;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, HostCall, Result, StreamId};
use outboard_front::profile::{self, Connection};
use outboard_wire::handshake::Local;
use outboard_wire::messages as msg;
use outboard_wire::window::Window;
use outboard_wire::{Reader, Writer};
use parking_lot::{Mutex, MutexGuard};

use crate::arena::Arena;
use crate::copies::hold::Holds;
use crate::copies::late::LateCopies;
use crate::copies::under_way::Copies;
use crate::graphs::{GraphHosts, Launch};
use crate::host_calls::HostFunctions;
use crate::kernels::KnownKernels;
use crate::link::{Expectation, Link, LinkError, Reply, Then};
use crate::pager::Moved;
use crate::progress::Progress;
use crate::requests::Requests;
use crate::reuse::{Block, Reuse};
use crate::times::Times;

use memory::GivenBack;
use notices::Pending;
#[cfg(fuzzing)]
pub(crate) use notices::Taken;
pub(crate) use notices::{FreedPlaces, LostLinks};
pub(crate) use open::{OpenError, Opened, explain, explain_hidden, open_link};
use postponed::PostponedFrees;

/// The error of every call once the session is lost: "CUDA-capable device(s) is/are busy or
/// unavailable".
pub const LOST: CUresult = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;

/// The connection, and what has come over it unasked.
#[derive(Debug)]
pub(crate) struct Session {
    link: Link,
    pending: Arc<Pending>,
    pub(crate) copies: Arc<Copies>,
    requests: Arc<Requests>,
    pub(crate) functions: Arc<HostFunctions>,
    pub(crate) late: Arc<LateCopies>,
    pub(crate) holds: Arc<Holds>,
    postponed: PostponedFrees,
    given_back: GivenBack,
    /// Whether the worker was told of halves of copies over links.
    has_copied_over_links: AtomicBool,
    pub(crate) lost_links: Arc<LostLinks>,
    pub(crate) freed_places: Arc<FreedPlaces>,
    graphs: Arc<GraphHosts>,
    /// Requests are heard once there is anything to ask for.
    graphs_expected: OnceLock<Expectation>,
    upload: Mutex<()>,
    progress: Arc<Progress>,
    times: Times,
    reuse: Reuse,
    images: ImageCounters,
    kernels: Arc<KnownKernels>,
    device: String,
    server: String,
    /// Where clients on the server's machine find it, if it says so.
    local: Option<Local>,
    window: Option<Window>,
    arena: Option<Arena>,
    devices: usize,
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

impl Session {
    /// Queues a command, which may put work into any stream.
    #[inline]
    pub(crate) fn post<M: msg::Message>(&self, ctx: ContextId, message: &M) -> Result<()> {
        self.progress.posted(self.post_numbered(ctx, message)?);
        Ok(())
    }

    /// Queues a command that puts work into a stream and into no other.
    #[inline]
    pub(crate) fn post_to<M: msg::Message>(
        &self,
        ctx: ContextId,
        stream: StreamId,
        message: &M,
    ) -> Result<()> {
        self.progress.posted_to(stream, self.post_numbered(ctx, message)?);
        Ok(())
    }

    /// As [`Session::post_to`]; returns the command's number.
    #[inline]
    pub(crate) fn post_counted<M: msg::Message>(
        &self,
        ctx: ContextId,
        stream: StreamId,
        message: &M,
    ) -> Result<u64> {
        let seq = self.post_numbered(ctx, message)?;
        self.progress.posted_to(stream, seq);
        Ok(seq)
    }

    /// As [`Session::post_counted`]; the worker is to begin with it at once.
    pub(crate) fn send_counted<M: msg::Message>(
        &self,
        ctx: ContextId,
        stream: StreamId,
        message: &M,
    ) -> Result<u64> {
        self.check_known::<M>()?;
        let seq = self.link.send(M::OP, ctx, |writer| message.encode(writer))?;
        self.progress.posted_to(stream, seq);
        Ok(seq)
    }

    /// Queues a command; the caller notes which stream the work is in.
    #[inline]
    pub(crate) fn post_numbered<M: msg::Message>(
        &self,
        ctx: ContextId,
        message: &M,
    ) -> Result<u64> {
        self.check_known::<M>()?;
        Ok(self.link.post(M::OP, ctx, |writer| message.encode(writer))?)
    }

    /// Sends a command, which may put work into any stream, and waits for its answer. What it
    /// returns is the command's own outcome: if it returned another command's failure, the caller
    /// would not know the outcome of its own.
    pub(crate) fn call<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<Vec<u8>> {
        let note = |reply: &Reply| self.progress.posted(reply.seq);
        self.exchange_with_memory(ctx, message, note).map(|(_, payload)| payload)
    }

    /// As [`Session::call`], for a command that leaves no work in any stream. Also returns its
    /// number.
    pub(crate) fn call_idle<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
    ) -> Result<(u64, Vec<u8>)> {
        self.exchange_with_memory(ctx, message, |_| ())
    }

    /// As [`Session::call_idle`], for a command that does nothing but wait, or ask. The first such
    /// call that itself succeeds returns the failure of an earlier posted command, if that has not
    /// been reported yet, as CUDA does.
    pub(crate) fn wait<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<(u64, Vec<u8>)> {
        let answer = self.call_idle(ctx, message)?;
        self.pending.take().map(|()| answer)
    }

    /// Sends a command and waits for its answer; once more without the memory that is kept, if it
    /// fails for want of some.
    fn exchange_with_memory<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
        note: impl Fn(&Reply),
    ) -> Result<(u64, Vec<u8>)> {
        self.with_memory(|| {
            let reply = self.exchange(ctx, message)?;
            note(&reply);
            self.finish(reply).map(|reply| (reply.seq, reply.payload))
        })
    }

    /// As [`Session::call_idle`], but a failure for want of memory is the answer: to be called
    /// while memory is given back.
    fn call_plainly<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<(u64, Vec<u8>)> {
        let reply = self.exchange(ctx, message)?;
        self.finish(reply).map(|reply| (reply.seq, reply.payload))
    }

    /// Tries something; once more without the memory that is kept, if it fails for want of some.
    /// Another thread may have given that memory back behind the first attempt, too.
    fn with_memory<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let before = self.given_back.count();
        match attempt() {
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) if self.give_all_since(before) => attempt(),
            outcome => outcome,
        }
    }

    /// As [`Session::wait`], for a command that returns one string of bytes, which may land in that
    /// memory.
    ///
    /// # Safety
    /// As of [`Link::call_for_bytes`].
    pub(crate) unsafe fn wait_for_bytes<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
        to: Option<(*mut u8, usize)>,
    ) -> Result<Reply> {
        self.check_known::<M>()?;
        let reply = self.with_memory(|| {
            let encode = |writer: &mut Writer| message.encode(writer);
            // SAFETY: by the contract above.
            self.finish(unsafe { self.link.call_for_bytes(M::OP, ctx, encode, to) }?)
        })?;
        self.pending.take().map(|()| reply)
    }

    /// A server of an older release gets no message that it does not know.
    #[inline]
    fn check_known<M: msg::Message>(&self) -> Result<()> {
        if self.link.knows::<M>() { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) }
    }

    fn exchange<M: msg::Call>(&self, ctx: ContextId, message: &M) -> Result<Reply> {
        self.check_known::<M>()?;
        Ok(self.link.call(M::OP, ctx, |writer| message.encode(writer))?)
    }

    /// Sends a command that does nothing but wait, and returns; `then` gets its reply. Whatever the
    /// program has to be told of stays.
    pub(crate) fn call_then<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
        then: Then,
    ) -> Result<()> {
        self.check_known::<M>()?;
        Ok(self.link.call_then(M::OP, ctx, |writer| message.encode(writer), then)?)
    }

    /// Waits for what comes with any answer: bytes of copies, words of kernels.
    pub(crate) fn take_in(&self) {
        profile::stalled(|| self.copies.settle());
        output::print_rest();
    }

    fn finish(&self, reply: Reply) -> Result<Reply> {
        self.take_in();
        match CUresult(reply.status) {
            CUresult::CUDA_SUCCESS => Ok(reply),
            error => Err(error),
        }
    }

    /// The result of a wait for work that is known to be done.
    pub(crate) fn wait_for_nothing(&self) -> Result<()> {
        if !self.link.is_alive() {
            return Err(LOST);
        }
        output::print_rest();
        self.pending.take()
    }

    /// The next wait that succeeds by itself returns this error.
    pub(crate) fn fail_later(&self, error: CUresult) {
        self.pending.set(error);
    }

    /// Times between events.
    pub(crate) fn times(&self) -> &Times {
        &self.times
    }

    /// Sends a command and reads its answer, on behalf of no call of the program: whatever that has
    /// to be told of stays.
    pub(crate) fn ask<M: msg::Call, T>(
        &self,
        ctx: ContextId,
        message: &M,
        read: impl for<'a> FnOnce(M::Reply<'a>) -> T,
    ) -> Result<T> {
        let reply = self.exchange(ctx, message)?;
        match CUresult(reply.status) {
            CUresult::CUDA_SUCCESS => Reader::new(&reply.payload)
                .get()
                .map(read)
                .map_err(|_| CUresult::CUDA_ERROR_UNKNOWN),
            error => Err(error),
        }
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

    /// To be called before a wait for the device: what pools do not hold on to goes back with it.
    #[inline]
    pub(crate) fn before_wait(&self) {
        self.reuse.before_wait(|block| self.give_back(block));
        self.free_what_was_postponed();
    }

    /// The record of finished work.
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Queues a call of the program's function. Until then `launch` is under way.
    pub(crate) fn host_call(
        &self,
        ctx: ContextId,
        stream: StreamId,
        call: HostCall,
        launch: Option<Launch>,
    ) -> Result<()> {
        let expected = self.link.expect()?;
        let always = call.is_always_called();
        let number = self.functions.add((ctx, stream), call, expected, launch);
        let posted =
            self.post_counted(ctx, stream, &msg::HostCall { stream, call: number, always });
        match posted {
            Ok(seq) => self.functions.queued(number, seq),
            Err(error) => {
                self.functions.remove(number);
                return Err(error);
            }
        }
        Ok(())
    }

    /// What graphs need of this process.
    pub(crate) fn graphs(&self) -> &GraphHosts {
        &self.graphs
    }

    /// From now on a thread reads requests for graphs.
    pub(crate) fn expect_graphs(&self) -> Result<()> {
        if self.graphs_expected.get().is_none() {
            let _ = self.graphs_expected.set(self.link.expect()?);
        }
        Ok(())
    }

    /// There is a context from now on, about which the worker may ask.
    pub(crate) fn context_opened(&self, ctx: ContextId) {
        self.requests.begin(ctx);
    }

    /// A context has ended: what was queued in it will not be called.
    pub(crate) fn context_ended(&self, ctx: ContextId) {
        self.progress.context_ended(ctx);
        self.functions.forget(ctx);
        self.late.end(ctx);
        self.requests.end(ctx);
    }

    /// Held while the pieces of an image are on their way.
    pub(crate) fn upload(&self) -> MutexGuard<'_, ()> {
        self.upload.lock()
    }

    /// What became of images.
    pub(crate) fn images(&self) -> &ImageCounters {
        &self.images
    }

    /// The server's address, as the program was given it.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Whether both are with one server, as far as it can be told.
    pub(crate) fn has_server_of(&self, other: &Session) -> bool {
        matches!((&self.local, &other.local), (Some(one), Some(other)) if one.host != 0 && one == other)
    }

    /// Whether the session has one device of the server.
    pub(crate) fn has_one_device(&self) -> bool {
        self.devices == 1
    }

    /// The connection.
    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Where the addresses of its devices lie, if the server keeps to a window.
    pub(crate) fn window(&self) -> Option<Window> {
        self.window
    }

    /// What the profile says of the connection; `moved` are pages.
    pub(crate) fn statistics(&self, moved: &Moved) -> Connection {
        let stats = self.link.stats();
        let images = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Connection {
            server: self.server.clone(),
            device: self.device.clone(),
            window: self.window.map(|window| window.to_string()),
            transport: self.link.peer().0.to_owned(),
            unused: self.link.unused().map(str::to_owned),
            posted: stats.posted,
            waited: stats.calls,
            sends: stats.sends,
            bytes_to_device: stats.sent + stats.bulk_sent,
            bytes_from_device: stats.received + stats.bulk_received,
            images_known: images(&self.images.known),
            images_sent: images(&self.images.sent),
            image_bytes_sent: images(&self.images.bytes),
            seconds_waiting: stats.waited.as_secs_f64(),
            seconds: self.started.elapsed().as_secs_f64(),
            page_faults: moved.faults,
            page_bytes_to_device: moved.pushed,
            page_bytes_from_device: moved.fetched,
            message_bytes_sent: 0,
            message_bytes_received: 0,
            messages_not_linked: None,
        }
    }
}

/// What a call of the program returns.
impl From<LinkError> for CUresult {
    fn from(error: LinkError) -> CUresult {
        match error {
            LinkError::Lost(_) => LOST,
            LinkError::TooLong(_) | LinkError::Transfer(_) => CUresult::CUDA_ERROR_INVALID_VALUE,
            // The command that announced the transfer has failed, and its own error is on its way.
            LinkError::Cancelled => CUresult::CUDA_ERROR_UNKNOWN,
        }
    }
}
