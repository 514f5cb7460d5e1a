//! Waking a thread that waits for a stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::descriptor::apart;

/// Ends a [`wait`](crate::Stream::wait) early. Wake-ups are remembered until a wait uses them up.
#[derive(Debug)]
pub struct Waker {
    event: OwnedFd,
}

impl Waker {
    /// A waker with no wake-up pending.
    ///
    /// # Errors
    /// The system's error if it has no further descriptor to give.
    pub fn new() -> io::Result<Waker> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Waker { event: apart(event)? })
    }

    /// One that another process may have, too.
    pub(crate) fn from_descriptor(event: OwnedFd) -> Waker {
        Waker { event }
    }

    /// Wakes the thread that waits, or the next one that does.
    pub fn wake(&self) {
        // The only error is a counter at its limit, which means that a wake-up is pending anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Uses up the pending wake-ups; whether there were any.
    pub(crate) fn clear(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&self.event, &mut count).is_ok()
    }

    /// Uses up the pending wake-ups unless their condition (`there`) still holds: other threads may
    /// wait for the same condition. The event thus stays readable as long as a socket would.
    pub(crate) fn clear_unless(&self, there: impl Fn() -> bool) {
        if there() {
            return;
        }
        self.clear();
        // It may have come since.
        if there() {
            self.wake();
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
