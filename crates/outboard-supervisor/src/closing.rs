//! Descriptors of others, which are closed where nobody waits.
//!
//! A close can take as long as its giver likes: a TCP socket lingers, a file system wants to write
//! first. The thread that serves everybody never waits for that.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{AtFlags, FileType, MemfdFlags, Statx, StatxFlags, memfd_create, statx};

/// Enough for a system call.
const STACK: usize = 64 << 10;

/// Things that are being closed.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// How many there may be before those who give descriptors are refused.
const MOST: usize = 256;

/// Drops it in a thread of its own.
pub(crate) fn elsewhere<T: Send + 'static>(what: T) {
    WAITING.fetch_add(1, Ordering::Relaxed);
    let what = ManuallyDrop::new(what);
    let drop_it = move || {
        drop(ManuallyDrop::into_inner(what));
        WAITING.fetch_sub(1, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("closes".to_owned()).stack_size(STACK);
    if let Err(error) = thread.spawn(drop_it) {
        // It stays open: that costs a descriptor, and to wait would cost everybody time.
        tracing::debug!(%error, "something that was given stays open");
    }
}

/// Whether so much is being closed that nothing more is to be taken.
pub(crate) fn is_behind() -> bool {
    WAITING.load(Ordering::Relaxed) >= MOST
}

/// What the system knows of a descriptor without asking anybody else, such as another machine.
fn known(descriptor: BorrowedFd<'_>) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(descriptor, c"", flags, StatxFlags::TYPE).ok()
}

pub(crate) fn is_socket(descriptor: BorrowedFd<'_>) -> bool {
    let mode = known(descriptor).map_or(0, |known| known.stx_mode);
    FileType::from_raw_mode(mode.into()) == FileType::Socket
}

/// Whether its last close is known not to wait: memory without a name, a device, and what is no
/// file at all, such as memory that devices share.
fn closes_at_once(descriptor: BorrowedFd<'_>) -> bool {
    static MEMORY: LazyLock<Option<(u32, u32)>> = LazyLock::new(|| {
        let memory = memfd_create(c"memory", MemfdFlags::CLOEXEC).ok()?;
        known(memory.as_fd()).map(|known| (known.stx_dev_major, known.stx_dev_minor))
    });
    let Some(known) = known(descriptor) else { return false };
    match FileType::from_raw_mode(known.stx_mode.into()) {
        FileType::CharacterDevice => true,
        FileType::RegularFile => Some((known.stx_dev_major, known.stx_dev_minor)) == *MEMORY,
        FileType::Unknown => true,
        _ => false,
    }
}

/// A descriptor that somebody else gave.
#[derive(Debug)]
pub(crate) struct Foreign(ManuallyDrop<OwnedFd>);

impl Foreign {
    pub(crate) fn new(descriptor: OwnedFd) -> Foreign {
        Foreign(ManuallyDrop::new(descriptor))
    }

    /// The descriptor, for a thread that may wait.
    pub(crate) fn into_inner(self) -> OwnedFd {
        let mut kept = ManuallyDrop::new(self);
        // SAFETY: it is taken once, as the value that had it is not dropped.
        unsafe { ManuallyDrop::take(&mut kept.0) }
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: it is taken once, as this value ends.
        let descriptor = unsafe { ManuallyDrop::take(&mut self.0) };
        if !closes_at_once(descriptor.as_fd()) {
            elsewhere(descriptor);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    /// A connection whose close takes ten seconds, and its peer.
    pub(crate) fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        ours.set_nonblocking(true).unwrap();
        // The peer reads nothing, so bytes are left that a close waits for.
        while ours.write(&[0; 1 << 16]).is_ok() {}
        let linger = Some(Duration::from_secs(10));
        rustix::net::sockopt::set_socket_linger(&ours, linger).unwrap();
        (ours.into(), theirs)
    }

    #[test]
    fn what_others_gave_is_closed_where_nobody_waits() {
        let (socket, mut peer) = lingering();
        let began = Instant::now();
        drop(Foreign::new(socket));
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        drop(std::io::copy(&mut peer, &mut std::io::sink()));
    }

    #[test]
    fn what_closes_at_once_is_told_from_what_may_wait() {
        let memory = memfd_create(c"some", MemfdFlags::CLOEXEC).unwrap();
        assert!(closes_at_once(memory.as_fd()) && !is_socket(memory.as_fd()));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(closes_at_once(null.as_fd()));
        let waits = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert!(closes_at_once(waits.as_fd()));
        let file = tempfile::tempfile().unwrap();
        assert!(!closes_at_once(file.as_fd()));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(!closes_at_once(socket.as_fd()) && is_socket(socket.as_fd()));
    }
}
