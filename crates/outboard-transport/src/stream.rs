//! What every transport carries: an ordered stream of bytes each way.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::waker::Waker;

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

    /// As [`wait`](Self::wait), and ends when this other descriptor can be read, too: whether it
    /// can. A stream above this one needs it, which keeps received bytes to itself.
    ///
    /// # Errors
    /// As `wait`, and [`io::ErrorKind::Unsupported`] for a stream that nothing lies upon.
    fn wait_beside(
        &self,
        _other: BorrowedFd<'_>,
        _interest: Interest,
        _waker: Option<&Waker>,
        _timeout: Option<Duration>,
    ) -> io::Result<(Readiness, bool)> {
        Err(io::ErrorKind::Unsupported.into())
    }

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
