//! The connection to one server: posts and calls in one total order, and the threads that move
//! their bytes.
//!
//! - [`Link::post`] appends a command and returns. A sender thread writes what has piled up.
//! - [`Link::call`] appends a command, writes everything pending itself, and reads replies itself
//!   until its own has come. Of several threads that wait, one reads for all (the leader); when it
//!   leaves, another takes over.
//! - [`Link::expect`] has a thread of ours read as well, for as long as the worker may ask
//!   something of the program.
//! - If the connection fails, the sender thread makes another one, and the session resumes where it
//!   stopped; see `reconnect.rs`. If none can be had, every waiting and every later call and post
//!   returns [`LinkError::Lost`].
//!
//! The threads here live in the program's process: they raise no signal, are never joined, and hold
//! no lock while they block, except the one for reading or the one for writing. A forked child has
//! none of them and must not use the link; the connection is taken from it as it starts.

mod adapters;
mod again;
pub mod bulk;
mod config;
mod connect;
mod connection;
mod error;
mod fork;
mod introduction;
mod landing;
mod lease;
mod listen;
mod listening;
mod locks;
mod movable;
mod moving;
mod queue;
mod reader;
mod receive;
mod reconnect;
mod refusals;
mod region;
mod reply;
mod request_threads;
pub mod security;
mod sender;
mod shared;
mod silence;
pub mod staged;
mod stats;
mod taken;
mod write;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outboard_front::profile;
use outboard_transport::{Memory, Stream, Transport, shm, tcp, unix};
use outboard_wire::handshake::beats::{BEATS, Beats};
use outboard_wire::handshake::files::{FILES, Files};
use outboard_wire::handshake::ivshmem::{self, IVSHMEM};
use outboard_wire::handshake::queued::{QUEUED, Queued};
use outboard_wire::handshake::rdma::{Able, RDMA};
use outboard_wire::handshake::resume::{RESUME, Terms};
use outboard_wire::handshake::windows::WINDOWS;
use outboard_wire::handshake::{Hello, VERSION, Version, Welcome};
use outboard_wire::messages::{Message, OLDEST};
use outboard_wire::{ContextId, Writer};

pub use bulk::{Later, Sent, Ticket, Upload};
pub use config::{Choice, Config, Rdma};
pub use connect::{Opened, Secured, Turn, ask_for_file, handshake, join, open, queue_patience};
pub use error::{ConnectError, LinkError, unreachable};
pub use introduction::Introduction;
pub use listen::{Answers, Expectation};
pub use movable::{Movable, NOT_USED};
pub use moving::{ask_about_transport, check_transport};
pub use reply::Reply;
pub(crate) use reply::Then;
pub(crate) use request_threads::RequestThreads;
pub use staged::StagedCopy;
pub use staged::background::{Background, Before, StagedTicket};
pub use stats::Stats;

use bulk::state::Bulk;
use connection::Resume;
pub use reader::NoticeHandler;
use shared::{Shared, WhenIdle};

/// The connection to one server.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    process: u32,
    /// Whether the worker maps files of the program, and how many it has been given.
    takes_files: bool,
    files: AtomicU64,
    /// For workers of other servers, if the server links its own to them.
    introduction: Option<Introduction>,
    /// The protocol's version that the server speaks.
    server: Version,
    /// What the session might use and does not, and why.
    unused: Option<String>,
}

impl Link {
    /// Connects to a server, introduces the client, and starts the link. Its bulk lanes are opened
    /// when the first transfer is.
    pub fn connect<T: Transport + Clone + 'static>(
        transport: &T,
        address: &str,
        hello: &Hello,
        config: Config,
        notices: NoticeHandler,
    ) -> Result<(Link, Welcome), ConnectError> {
        let mut hello = hello.clone();
        if !config.reconnect.is_zero() {
            hello.more.set(RESUME, &Terms { grace: config.reconnect });
        }
        if adapters::may_move(address, &hello, &config) {
            hello.more.set(RDMA, &Able);
        }
        let device = region::device(address, &hello, &config)?;
        if let Ok(Some(device)) = &device {
            hello.more.set(IVSHMEM, &ivshmem::Able { region: device.id() });
        }
        let connect::Connected { stream, memory, welcome, secured, movable, unused } =
            connect::connect(transport, address, &hello, &config, device)?;
        // Further connections are of the session that there is.
        hello.more.remove(WINDOWS);
        hello.more.remove(RDMA);
        hello.more.remove(IVSHMEM);
        let hello = &hello;
        let beats: Option<Beats> = again::part(&welcome, BEATS, address)?;
        // Two of them may be late.
        let silence = beats.map(|beats| (3 * beats.period).max(tcp::keepalive()));
        let queued: Option<Queued> = again::part(&welcome, QUEUED, address)?;
        let config = Config { silence, ..config };
        let introduction = Introduction::of(&welcome, secured.as_ref(), address)?;
        let again = again::Again { transport: transport.clone(), secured, movable };
        let dial = again.dial(address, hello, &welcome, &config, memory.is_some());
        let resume = again.resume(address, hello, &welcome, memory.is_some())?;
        let grace = resume.as_ref().map(|resume| resume.grace);
        let lending = again.movable.as_ref().map(|movable| movable.lending()).unwrap_or_default();
        let lanes = welcome.lanes as usize;
        let bulk = Bulk::new(Some(dial), lanes, grace, queued.is_some(), lending);
        let files: Option<Files> = again::part(&welcome, FILES, address)?;
        let takes_files = files.is_some() && memory.is_some();
        let mut link = Link::assemble(stream, config, notices, bulk, memory, resume)
            .map_err(ConnectError::Local)?;
        link.takes_files = takes_files;
        link.introduction = introduction;
        link.server = welcome.version;
        link.unused = unused;
        Ok((link, welcome))
    }

    /// Starts a link without bulk lanes on a stream whose handshake is done.
    pub fn start(
        stream: Arc<dyn Stream>,
        config: Config,
        notices: NoticeHandler,
    ) -> io::Result<Link> {
        Link::assemble(
            stream,
            config,
            notices,
            Bulk::new(None, 0, None, false, Arc::default()),
            None,
            None,
        )
    }

    fn assemble(
        stream: Arc<dyn Stream>,
        config: Config,
        notices: NoticeHandler,
        bulk: Bulk,
        memory: Option<Memory>,
        resume: Option<Resume>,
    ) -> io::Result<Link> {
        let shared = Arc::new(Shared::new(stream, config, notices, bulk, memory, resume)?);
        sender::start(Arc::clone(&shared))?;
        fork::register(&shared);
        Ok(Link {
            shared,
            process: std::process::id(),
            takes_files: false,
            files: AtomicU64::new(0),
            introduction: None,
            server: VERSION,
            unused: None,
        })
    }

    /// Whether the server knows this message.
    #[inline]
    pub(crate) fn knows<M: Message>(&self) -> bool {
        M::SINCE <= OLDEST || M::SINCE <= self.server.minor
    }

    /// What a worker of another server must know to connect to this session's.
    pub fn introduction(&self) -> Option<&Introduction> {
        self.introduction.as_ref()
    }

    /// Whether the user lets the server share memory.
    pub fn may_share(&self) -> bool {
        !matches!(self.shared.config.transport, Choice::Tcp | Choice::Rdma | Choice::Ivshmem)
    }

    /// Appends a command that is not waited for, and returns its number. Blocks only while the
    /// queue is full.
    ///
    /// `ctx` is the client's name for the calling thread's current context, 0 for none.
    #[inline]
    pub fn post(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<u64, LinkError> {
        self.shared.post(op, ctx, counted(encode))
    }

    /// As [`post`](Self::post), and sends everything pending: for a command with which the worker
    /// is to begin at once. Who posts it and then [flushes](Self::flush) wakes a thread in vain.
    pub fn send(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<u64, LinkError> {
        self.shared.send(op, ctx, counted(encode))
    }

    /// Appends a command, sends everything pending, and waits for its reply.
    pub fn call(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<Reply, LinkError> {
        let reply = profile::waited(|| self.shared.call(op, ctx, counted(encode)))?;
        if profile::is_on() {
            profile::moved(0, reply.payload.len() as u64);
        }
        Ok(reply)
    }

    /// Sends a command whose reply `then` is given, and returns. A thread reads the reply even if
    /// no thread of the program waits for anything.
    pub(crate) fn call_then(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
        then: Then,
    ) -> Result<(), LinkError> {
        let expected = self.expect()?;
        let then = move |reply| {
            drop(expected);
            then(reply);
        };
        self.shared.call_then(op, ctx, counted(encode), Box::new(then))
    }

    /// A thread of the program waits for a command that was sent by
    /// [`call_then`](Self::call_then): the statistics count it.
    pub(crate) fn count_call(&self) {
        self.shared.counters.calls.add(1);
    }

    /// As [`call`](Self::call), for a command that returns one string of bytes. If it has as many
    /// as that memory, they may [land](Reply::landed) there, and are copied only once. If they do
    /// not, or the call fails, some of them may be there.
    ///
    /// # Safety
    /// The memory must be valid for writes, and nobody else may use it, until this returns.
    pub unsafe fn call_for_bytes(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
        memory: Option<(*mut u8, usize)>,
    ) -> Result<Reply, LinkError> {
        let lands = memory.filter(|_| self.shared.reader.lands());
        // SAFETY: by the contract above.
        let call = || unsafe { self.shared.call_for(op, ctx, counted(encode), lands) };
        let reply = profile::waited(call)?;
        if profile::is_on() {
            let landed = memory.filter(|_| reply.landed).map_or(0, |(_, len)| len);
            profile::moved(0, (reply.payload.len() + landed) as u64);
        }
        Ok(reply)
    }

    /// Sets a function that the sender thread calls whenever it has no command to write. The
    /// function may post.
    pub(crate) fn when_idle(&self, look: WhenIdle) {
        let _ = self.shared.when_idle.set(look);
    }

    /// Has that thread call it soon.
    pub(crate) fn run_idle_work(&self) {
        self.shared.queue.wake_sender();
    }

    /// Sends everything posted so far and polls memory for a sign, for as long as waits are worth
    /// spinning for, at most `most`. Returns whether the sign came; then everything that the worker
    /// had sent before it has been read.
    pub fn poll_for(&self, sign: impl Fn() -> bool, most: Duration) -> bool {
        profile::waited(|| self.shared.poll_for(sign, most))
    }

    /// Sends everything posted so far, without waiting for any reply.
    pub fn flush(&self) -> Result<(), LinkError> {
        self.shared.flush()
    }

    /// Opens a transfer of `len` bytes to the worker, in chunks of `chunk` bytes
    /// ([`bulk::suggested_chunk`], [`CHUNK_BYTES`](outboard_wire::limits::CHUNK_BYTES)). Blocks
    /// while the worker's staging memory is taken by other transfers; `None` if none of them moves
    /// and the worker takes [queued](Self::upload_queued) ones.
    pub fn upload(&self, len: u64, chunk: u32) -> Result<Option<Upload<'_>>, LinkError> {
        let upload = profile::stalled(|| bulk::open_upload(&self.shared, len, chunk))?;
        if profile::is_on() && upload.is_some() {
            profile::moved(len, 0);
        }
        Ok(upload)
    }

    /// Whether an adapter moves a copy from there to the device without staging memory, once the
    /// copy's turn has come.
    pub fn needs_no_staging(&self, from: &bulk::HostBytes, len: u64) -> bool {
        self.shared.bulk.needs_no_staging(from, len)
    }

    /// Opens a transfer to the worker that has no staging memory: its bytes can be sent only when
    /// the worker asks for them.
    pub fn upload_queued(&self, len: u64, chunk: u32) -> Result<Upload<'_>, LinkError> {
        let upload = bulk::open_queued_upload(&self.shared, len, chunk)?;
        if profile::is_on() {
            profile::moved(len, 0);
        }
        Ok(upload)
    }

    /// Opens a transfer of `len` bytes from the worker to `to`; the command that announces it must
    /// be posted afterwards. Its bytes are written once the transfers `behind` which it is have
    /// ended.
    ///
    /// # Safety
    /// The memory must stay valid for writes, and be left alone, until the ticket says that the
    /// transfer has ended.
    pub unsafe fn download(
        &self,
        to: impl Into<bulk::HostBytes>,
        len: u64,
        chunk: u32,
        behind: Vec<u64>,
    ) -> Result<Ticket, LinkError> {
        // SAFETY: the caller promises the same.
        let ticket = profile::stalled(|| unsafe {
            bulk::open_download(&self.shared, to.into(), len, chunk, behind)
        })?;
        if profile::is_on() {
            profile::moved(0, len);
        }
        Ok(ticket)
    }

    /// The program has page-locked memory, which an adapter of the server's may read and write for
    /// copies.
    ///
    /// # Safety
    /// The memory stays mapped until [`lend_no_more`](Self::lend_no_more) has returned.
    pub unsafe fn may_lend(&self, memory: *mut u8, bytes: usize) {
        // SAFETY: the caller promises the same.
        unsafe { self.shared.bulk.lending.add(memory, bytes) };
    }

    /// No adapter of the server's reads or writes that memory from here on. No copy uses it.
    pub fn lend_no_more(&self, memory: *mut u8) {
        self.shared.bulk.lending.remove(memory);
    }

    /// Begins to open the lanes, in threads of their own: large copies are likely.
    pub fn expect_copies(&self) {
        bulk::open_lanes_ahead(&self.shared);
    }

    /// A chunk size for a transfer of `len` bytes, by what earlier ones have shown of the link.
    pub fn chunk(&self, direction: bulk::Direction, len: u64, is_queued: bool) -> u32 {
        bulk::chunk(&self.shared, direction, len, is_queued)
    }

    /// Takes a part of the memory that the worker shares for a transfer of `len` bytes; waits while
    /// other transfers have it all. `None` if the worker shares none.
    ///
    /// # Safety
    /// The program's bytes at `place` are valid until [`StagedCopy::run`] returns: for reads or,
    /// towards the program, for writes.
    pub unsafe fn stage(
        &self,
        direction: bulk::Direction,
        place: impl Into<bulk::HostBytes>,
        len: u64,
        chunk: u32,
    ) -> Option<Result<StagedCopy<'_>, LinkError>> {
        // SAFETY: the caller promises the same.
        unsafe { staged::open(&self.shared, direction, place.into(), len, chunk) }
    }

    /// Takes a part of that memory for a transfer of a stream, of `len` bytes, that goes on while
    /// this thread does, too; waits while others of the stream have too much of it and move. `None`
    /// if there is none to be had. A transfer to the program writes once those that it is `behind`
    /// have.
    ///
    /// # Safety
    /// The program's bytes at `place` are valid until the ticket says that the transfer has ended:
    /// for reads or, towards the program, for writes.
    pub unsafe fn stage_in_background(
        &self,
        direction: bulk::Direction,
        place: impl Into<bulk::HostBytes>,
        (len, chunk): (u64, u32),
        stream: staged::Stream,
        behind: Vec<Before>,
    ) -> Result<Option<Background<'_>>, LinkError> {
        // SAFETY: the caller promises the same.
        profile::stalled(|| unsafe {
            staged::background::open(
                &self.shared,
                direction,
                place.into(),
                (len, chunk),
                stream,
                behind,
            )
        })
    }

    /// While the result lives, the worker's requests are read even if no thread waits for an
    /// answer.
    pub fn expect(&self) -> Result<Expectation, LinkError> {
        listen::expect(&self.shared)
    }

    /// What answers the worker's requests.
    pub fn answers(&self) -> Answers {
        Answers::new(&self.shared)
    }

    /// Whether the connection is still up, as far as known.
    #[inline]
    pub fn is_alive(&self) -> bool {
        !self.shared.is_lost()
    }

    /// For how long it has had no connection, if it has none.
    pub(crate) fn broken_for(&self) -> Option<std::time::Duration> {
        let connection = &self.shared.connection;
        // A lock only once it is broken.
        let broken = connection.is_broken().then(|| connection.failure()).flatten();
        broken.map(|broken| broken.since.elapsed())
    }

    /// Whether the process is ending by itself: the session ends with it, and with that all that it
    /// holds.
    pub fn is_leaving(&self) -> bool {
        self.shared.connection.is_leaving()
    }

    /// Number of the last command posted or called.
    pub fn last(&self) -> u64 {
        self.shared.last()
    }

    /// Counters since the start.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// The memory that the server's worker shares with this process, if it is on the same machine.
    pub fn memory(&self) -> Option<&Memory> {
        self.shared.memory.as_ref()
    }

    /// Whether the worker maps files of the program.
    pub fn takes_files(&self) -> bool {
        self.takes_files
    }

    /// Whether the server could open this process's files by itself: it belongs to the process's
    /// own user, or to root.
    pub fn server_sees_our_files(&self) -> bool {
        let stream = self.shared.connection.current().stream;
        let user = stream.descriptor().filter(|socket| unix::is_unix(*socket)).and_then(unix::user);
        user.is_some_and(|user| user == 0 || user == rustix::process::geteuid().as_raw())
    }

    /// Whether the worker takes files of the program, and could open them by itself.
    pub fn shares_files(&self) -> bool {
        self.takes_files() && self.server_sees_our_files()
    }

    /// Hands the worker a file, which a command then names by the number that is returned.
    pub fn give_file(&self, file: BorrowedFd<'_>) -> io::Result<u64> {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        shm::give_file(&*self.shared.connection.current().stream, number, file).map(|()| number)
    }

    /// What the session might use and does not, and why.
    pub fn unused(&self) -> Option<&str> {
        self.unused.as_deref()
    }

    /// Which transport, and the peer's address.
    pub fn peer(&self) -> (&'static str, String) {
        let stream = self.shared.connection.current().stream;
        (stream.transport(), stream.peer())
    }

    /// Ends the connection now, unsent commands included. All waiting threads return
    /// [`LinkError::Lost`].
    pub fn close(&self) {
        self.shared.close();
    }
}

/// Tells the profile how long the encoded command is.
#[inline(always)]
fn counted(encode: impl FnOnce(&mut Writer)) -> impl FnOnce(&mut Writer) {
    |writer| {
        let before = writer.len();
        encode(writer);
        if profile::is_on() {
            profile::posted(writer.len() - before);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // In a forked child the connection belongs to the parent, and locks may never be released.
        if std::process::id() == self.process {
            fork::unregister(&self.shared);
            self.shared.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use outboard_transport::pipe;
    use outboard_wire::Encode;

    use super::*;

    /// A message of the version behind the first release's.
    struct New;

    impl Encode for New {
        fn encode(&self, _: &mut Writer) {}
    }

    impl Message for New {
        const OP: u16 = 1;
        const SINCE: u16 = OLDEST + 1;
    }

    #[test]
    fn a_server_knows_the_messages_of_its_version() {
        let (client, _server) = pipe::pair().unwrap();
        let mut link = Link::start(client, Config::default(), Box::new(|_, _| ())).unwrap();
        assert!(link.knows::<New>(), "it is of this source");
        link.server.minor = OLDEST;
        assert!(!link.knows::<New>());
        assert!(link.knows::<outboard_wire::messages::ContextClose>());
    }
}
