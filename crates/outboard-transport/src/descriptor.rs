//! What streams over a socket have in common.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};

use crate::stream::{Interest, Readiness};
use crate::waker::Waker;

/// A connected, non-blocking, close-on-exec stream socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
}

/// The lowest number of a descriptor of ours.
const LOWEST: RawFd = 3;

/// The descriptor under a number that no standard stream has. A program may have closed its
/// standard streams, and what it writes to them anyway would go into a connection.
pub(crate) fn apart(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() >= LOWEST {
        return Ok(fd);
    }
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, LOWEST)?)
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Socket> {
        let fd = apart(fd)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        Ok(Socket { fd })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        again(|| recv(&self.fd, &mut *buffer, RecvFlags::empty()).map(|(count, _)| count))
    }

    pub(crate) fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        again(|| match buffers {
            [one] => send(&self.fd, one, SendFlags::NOSIGNAL),
            several => {
                sendmsg(&self.fd, several, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
            }
        })
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match shutdown(&self.fd, Shutdown::Both) {
            // The peer was faster.
            Ok(()) | Err(Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the descriptor by an event. If it were closed, the system could give its number to
    /// other code, and this value would close that code's descriptor.
    pub(crate) fn abandon(&self) -> io::Result<()> {
        abandon(self.fd.as_raw_fd())
    }

    pub(crate) fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
        wait_for(self.fd(), None, interest, waker, timeout).map(|(ready, _)| ready)
    }

    pub(crate) fn wait_beside(
        &self,
        other: BorrowedFd<'_>,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<(Readiness, bool)> {
        wait_for(self.fd(), Some(other), interest, waker, timeout)
    }
}

/// Implements [`Stream::wait`](crate::Stream::wait) for a stream over this descriptor, and
/// [`Stream::wait_beside`](crate::Stream::wait_beside) if there is an `other` one.
pub(crate) fn wait_for(
    fd: BorrowedFd<'_>,
    other: Option<BorrowedFd<'_>>,
    interest: Interest,
    waker: Option<&Waker>,
    timeout: Option<Duration>,
) -> io::Result<(Readiness, bool)> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, interest.read);
    flags.set(PollFlags::OUT, interest.write);
    flags.set(PollFlags::RDHUP, interest.hangup);
    // A wait beyond what the clock can hold is a wait without a limit.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let nothing = || PollFd::from_borrowed_fd(fd, PollFlags::empty());
    let mut fds = [PollFd::from_borrowed_fd(fd, flags), nothing(), nothing()];
    let mut count = 1;
    if let Some(waker) = waker {
        fds[count] = PollFd::new(waker, PollFlags::IN);
        count += 1;
    }
    if let Some(other) = other {
        fds[count] = PollFd::from_borrowed_fd(other, PollFlags::IN);
        count += 1;
    }
    poll_until(&mut fds[..count], deadline)?;
    let found = fds[0].revents();
    let failed = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    let can_be_read = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::IN);
    let woken = waker.is_some_and(|waker| can_be_read(&fds[1]) && waker.clear());
    let beside = other.is_some() && can_be_read(&fds[count - 1]);
    let ready = Readiness {
        read: interest.read && (failed || found.intersects(PollFlags::IN | PollFlags::RDHUP)),
        write: interest.write && (failed || found.contains(PollFlags::OUT)),
        hangup: failed || found.contains(PollFlags::RDHUP),
        woken,
    };
    Ok((ready, beside))
}

/// As [`Stream::abandon`](crate::Stream::abandon), for a stream of which only the descriptor's
/// number is known. Does nothing for a negative number.
///
/// # Errors
/// The system's error if it has no further descriptor to give.
pub fn abandon(descriptor: RawFd) -> io::Result<()> {
    if descriptor < 0 {
        return Ok(());
    }
    let harmless = eventfd(0, EventfdFlags::CLOEXEC)?;
    // SAFETY: both numbers are open descriptors that this process owns, and `descriptor` stays one:
    // dup3 only changes what it refers to.
    match unsafe { libc::dup3(harmless.as_raw_fd(), descriptor, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The methods of [`Stream`](crate::stream::Stream) that are the same for every stream over a
/// socket, for a type with the field `socket`.
macro_rules! over_a_socket {
    () => {
        fn read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.socket.read(buffer)
        }

        fn write(&self, buffers: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
            self.socket.write(buffers)
        }

        fn wait(
            &self,
            interest: $crate::stream::Interest,
            waker: Option<&$crate::waker::Waker>,
            timeout: Option<std::time::Duration>,
        ) -> std::io::Result<$crate::stream::Readiness> {
            self.socket.wait(interest, waker, timeout)
        }

        fn wait_beside(
            &self,
            other: std::os::fd::BorrowedFd<'_>,
            interest: $crate::stream::Interest,
            waker: Option<&$crate::waker::Waker>,
            timeout: Option<std::time::Duration>,
        ) -> std::io::Result<($crate::stream::Readiness, bool)> {
            self.socket.wait_beside(other, interest, waker, timeout)
        }

        fn shutdown(&self) -> std::io::Result<()> {
            self.socket.shutdown()
        }

        fn abandon(&self) -> std::io::Result<()> {
            self.socket.abandon()
        }

        fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            Some(self.socket.fd())
        }
    };
}
pub(crate) use over_a_socket;

/// Waits until one of the descriptors is ready, at most until `deadline`; returns how many are.
pub(crate) fn poll_until(fds: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<usize> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left: Option<Timespec> = left.and_then(|left| left.try_into().ok());
        match poll(fds, left.as_ref()) {
            Ok(count) => return Ok(count),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Repeats a system call that a signal interrupted: signals belong to the application.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
