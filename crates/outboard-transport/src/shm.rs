//! Streams through memory that two processes of one machine share.
//!
//! The bytes go through two rings (`rings.rs`), one each way. The Unix socket over which the
//! memory was handed over stays open and idle; its end tells that the peer is gone. A thread with
//! nothing to read, or no room to write, sleeps on an event that the peer signals only if someone
//! sleeps.

mod handing;

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::descriptor::{Socket, poll_until};
use crate::rings::{BYTES, End, Keeper, Rings};
use crate::segment::Segment;
use crate::stream::{Capabilities, Interest, Readiness, Stream};
use crate::transport::{Listener, Transport};
use crate::unix::{UnixServer, dial};
use crate::waker::Waker;
pub use handing::{MOST_FILES, Offer, confirm, give_file, take_file, take_up};

/// A transport over memory, whose addresses are paths of Unix sockets. It is for tests; clients and
/// servers say hello over the socket first, and then [move](Offer::move_to) to memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shm;

/// What wakes threads that wait for one direction: the peer's, and this process's.
struct Events {
    theirs: Waker,
    ours: Waker,
}

struct ShmStream {
    socket: Socket,
    rings: Rings<Memory>,
    /// For what this process writes, and for what it reads.
    out: Events,
    back: Events,
    /// This process has abandoned the stream; another one uses it.
    abandoned: AtomicBool,
}

/// A segment of the right size.
struct Memory(Segment);

// SAFETY: it is mapped at a page, and has the size.
unsafe impl Keeper for Memory {
    fn memory(&self) -> NonNull<u8> {
        self.0.start()
    }
}

impl ShmStream {
    fn start(
        socket: OwnedFd,
        segment: Segment,
        end: End,
        (out, back): (Events, Events),
    ) -> io::Result<ShmStream> {
        if segment.bytes() != BYTES {
            let wrong = "the memory for the rings has another size";
            return Err(io::Error::new(io::ErrorKind::InvalidData, wrong));
        }
        let rings = Rings::new(Memory(segment), end);
        let abandoned = AtomicBool::new(false);
        Ok(ShmStream { socket: Socket::new(socket)?, rings, out, back, abandoned })
    }

    fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            Ok(())
        }
    }

    /// Ends both directions.
    fn close(&self) {
        self.rings.close();
        for events in [&self.out, &self.back] {
            events.theirs.wake();
            events.ours.wake();
        }
    }
}

impl Stream for ShmStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.rings.read(buffer, || self.back.theirs.wake())
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        self.rings.write(buffers, || self.out.theirs.wake())
    }

    fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
        self.check()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let _asleep = self.rings.sleep(interest);
        loop {
            let mut ready = self.rings.look(interest);
            let now = ready != Readiness::default();
            let flag = |wanted| if wanted { PollFlags::IN } else { PollFlags::empty() };
            let mut fds = [
                PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::RDHUP),
                PollFd::new(&self.back.ours, flag(interest.read)),
                PollFd::new(&self.out.ours, flag(interest.write)),
                PollFd::new(waker.unwrap_or(&self.out.ours), flag(waker.is_some())),
            ];
            let count = poll_until(&mut fds, if now { Some(Instant::now()) } else { deadline })?;
            let found = fds.map(|fd| fd.revents());
            if found[1].contains(PollFlags::IN) {
                self.back.ours.clear_unless(|| self.rings.look(Interest::READ).read);
            }
            if found[2].contains(PollFlags::IN) {
                self.out.ours.clear_unless(|| self.rings.look(Interest::WRITE).write);
            }
            if found[0]
                .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
            {
                self.rings.lose();
                ready = self.rings.look(interest);
                ready.hangup = true;
            }
            ready.woken = found[3].contains(PollFlags::IN) && waker.is_some_and(Waker::clear);
            if count == 0 || now || ready != Readiness::default() {
                return Ok(ready);
            }
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        self.check()?;
        self.close();
        self.socket.shutdown()
    }

    fn abandon(&self) -> io::Result<()> {
        self.abandoned.store(true, Ordering::Relaxed);
        self.socket.abandon()
    }

    fn has_room(&self) -> bool {
        self.rings.has_room()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: true, shares_memory: true, striping: false, quick: true }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd())
    }

    fn transport(&self) -> &'static str {
        "shm"
    }

    fn peer(&self) -> String {
        "a process of this machine".to_owned()
    }
}

impl Drop for ShmStream {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Relaxed) {
            self.close();
        }
    }
}

impl fmt::Debug for ShmStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShmStream").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct ShmServer(UnixServer);

/// How long an accepted client may take to offer its memory.
const PATIENCE: Duration = Duration::from_secs(10);

impl Transport for Shm {
    fn name(&self) -> &'static str {
        "shm"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        Ok(Arc::new(Offer::new()?.send(dial(address.as_ref(), timeout)?, &[])?))
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(ShmServer(UnixServer::bind(address)?)))
    }
}

impl Listener for ShmServer {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        Ok(take_up(self.0.take()?, Instant::now() + PATIENCE)?.0)
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.0.path())
    }
}

#[cfg(test)]
mod tests;
