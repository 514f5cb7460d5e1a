//! Byte streams between client and server: the transport trait, its conformance suite, TCP, TLS
//! over it, shared memory.
//!
//! A [`Transport`] makes [`Stream`]s. A stream never blocks in `read` and `write`; [`Stream::wait`]
//! does, so that the caller decides how long to spin before it. The [`conformance`] suite states
//! what every transport owes its callers.
#![warn(missing_docs, clippy::missing_errors_doc)]

mod address;
mod any;
mod bell;
pub mod conformance;
mod descriptor;
pub mod host;
pub mod lane;
mod memory;
pub mod passing;
pub mod pipe;
mod random;
pub mod reserved;
mod ring;
pub mod segment;
pub mod shm;
mod spin;
pub mod tcp;
pub mod tls;
pub mod unix;
mod waker;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use address::{Address, AddressError, DEFAULT_PORT, Endpoint};
pub use any::Any;
pub use bell::{Bell, Signal};
pub use descriptor::abandon;
pub use memory::Memory;
pub use random::random;
pub use spin::{Patience, Spin, SpinLimits};
pub use waker::Waker;

/// A way to reach servers.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Its name in messages and tables: `tcp`.
    fn name(&self) -> &'static str;

    /// Connects to a server, or gives up after `timeout`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`], or why the server cannot be reached.
    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>>;

    /// Waits for clients.
    ///
    /// # Errors
    /// The system's error, such as [`io::ErrorKind::AddrInUse`].
    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>>;
}

/// The server's end of a transport.
pub trait Listener: Send + Sync + fmt::Debug {
    /// The next client; blocks.
    ///
    /// # Errors
    /// The system's error. Later clients may be accepted all the same.
    fn accept(&self) -> io::Result<Arc<dyn Stream>>;

    /// Where clients reach it: what to pass to [`Transport::connect`].
    ///
    /// # Errors
    /// The system's error if it does not know the socket's address.
    fn address(&self) -> io::Result<String>;
}

/// One ordered, reliable stream of bytes each way.
///
/// One thread may read while another writes; two threads that read at once, or write at once, get
/// their bytes mixed but break nothing.
pub trait Stream: Send + Sync + fmt::Debug {
    /// Reads what is there, at most `buffer.len()` bytes. `Ok(0)` is the end: the peer has shut
    /// down or is gone. [`io::ErrorKind::WouldBlock`] if nothing is there yet. Never raises a
    /// signal.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or why the connection was lost.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much of the buffers as fits, in order, and returns the number of bytes.
    /// [`io::ErrorKind::WouldBlock`] if nothing fits now. Never raises a signal.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], or why the connection was lost.
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Blocks until the stream is ready for one of `interest`, it has failed, the waker is woken,
    /// or `timeout` (none: forever) has passed.
    ///
    /// # Errors
    /// The system's error if it cannot wait. A lost connection is no error here: `read` and `write`
    /// report it.
    fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness>;

    /// Ends both directions, for every process that shares the stream. Blocked and later calls
    /// return.
    ///
    /// # Errors
    /// The system's error, which leaves the stream open.
    fn shutdown(&self) -> io::Result<()>;

    /// Closes the connection in this process only; another process that shares it keeps it. A
    /// forked child calls this, so that the peer notices when the parent ends. Makes only calls
    /// that are safe in a signal handler. Afterwards every method fails.
    ///
    /// # Errors
    /// The system's error if it has no further descriptor to give.
    fn abandon(&self) -> io::Result<()>;

    /// Fails if the peer has owed an answer for too long. A waiting thread should call it every few
    /// seconds.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] for a silent peer, or the system's error.
    fn check_peer(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the peer's system has not acknowledged some bytes yet: only then can
    /// [`check_peer`](Self::check_peer) fail.
    fn is_unanswered(&self) -> bool {
        false
    }

    /// Why the stream has failed, if the system says so; it says so once.
    fn error(&self) -> Option<io::Error> {
        None
    }

    /// Whether much more can certainly be written now; `None` if only a system call could tell.
    fn has_room(&self) -> bool {
        false
    }

    /// What this stream can do beyond moving bytes.
    fn capabilities(&self) -> Capabilities;

    /// The descriptor under it, if there is one, to hand it to another process.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The socket at the bottom of it, if there is one, whatever is in between.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor()
    }

    /// Which transport, for tables.
    fn transport(&self) -> &'static str;

    /// The peer's address, for messages.
    fn peer(&self) -> String;
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interest {
    /// Bytes or the end can be read.
    pub read: bool,
    /// Bytes can be written.
    pub write: bool,
    /// The peer has shut down or is gone, even if unread bytes remain.
    pub hangup: bool,
}

impl Interest {
    /// Bytes or the end can be read.
    pub const READ: Interest = Interest { read: true, write: false, hangup: false };
    /// Bytes can be written.
    pub const WRITE: Interest = Interest { read: false, write: true, hangup: false };
    /// The peer is gone.
    pub const HANGUP: Interest = Interest { read: false, write: false, hangup: true };
}

/// Why a wait ended. All false: the time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Readiness {
    /// A read will not block.
    pub read: bool,
    /// A write will not block.
    pub write: bool,
    /// The peer is gone, or the stream has failed.
    pub hangup: bool,
    /// The waker was woken; its wake-ups until now are used up.
    pub woken: bool,
}

/// What a stream can do beyond moving bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Capabilities {
    /// It has a descriptor that can be passed to another process of the same host.
    pub descriptor: bool,
    /// Both ends are on one host and can share memory.
    pub shares_memory: bool,
    /// Several streams to one server carry more than one does.
    pub striping: bool,
    /// A read that finds no bytes makes no system call and takes nanoseconds.
    pub quick: bool,
}

/// Writes all of `bytes`, waiting as needed.
///
/// # Errors
/// The stream's error. Some bytes may have been written then.
pub fn write_all(stream: &dyn Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                block(stream, Interest::WRITE, None)?
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buffer`, waiting as needed; the end before that is [`io::ErrorKind::UnexpectedEof`].
///
/// # Errors
/// [`io::ErrorKind::UnexpectedEof`] if the stream ends before, or the stream's error.
pub fn read_exact(stream: &dyn Stream, buffer: &mut [u8]) -> io::Result<()> {
    read_exact_unless_silent(stream, buffer, None)
}

/// As [`read_exact`]; [`io::ErrorKind::TimedOut`] if no byte arrives for the time `silence`.
///
/// # Errors
/// As [`read_exact`], and [`io::ErrorKind::TimedOut`].
pub fn read_exact_unless_silent(
    stream: &dyn Stream,
    mut buffer: &mut [u8],
    silence: Option<Duration>,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                block(stream, Interest::READ, silence)?
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Like [`read_exact`], but fails with [`io::ErrorKind::TimedOut`] when `deadline` has passed.
///
/// # Errors
/// As [`read_exact`], and [`io::ErrorKind::TimedOut`].
pub fn read_exact_until(
    stream: &dyn Stream,
    mut buffer: &mut [u8],
    deadline: Instant,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = &mut buffer[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                stream.wait(Interest::READ, None, Some(left))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// How often a waiting thread calls [`Stream::check_peer`].
pub const PEER_CHECK: Duration = Duration::from_secs(2);

/// Waits in the middle of a frame, for at most `silence` if there is a limit, and notices a peer
/// that no longer answers.
pub(crate) fn block(
    stream: &dyn Stream,
    interest: Interest,
    silence: Option<Duration>,
) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let left = silence.map_or(PEER_CHECK, |silence| silence.saturating_sub(began.elapsed()));
        if left.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the other side stopped in the middle of a frame",
            ));
        }
        if stream.wait(interest, None, Some(left.min(PEER_CHECK)))? != Readiness::default() {
            return Ok(());
        }
        stream.check_peer()?;
    }
}
