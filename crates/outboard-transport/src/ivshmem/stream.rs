//! The stream itself. Bytes go through a slot's rings. The connection over which the sides have met
//! carries bells: a byte for a side that has marked that it sleeps. Its end is the stream's end.

use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::part::Slot;
use crate::descriptor::poll_until;
use crate::met::Met;
use crate::rings::{End, Rings};
use crate::spin::{Patience, Spin, SpinLimits};
use crate::stream::{Capabilities, Interest, Readiness, Stream};
use crate::waker::Waker;

/// A bell says nothing but that there is something to look at.
const BELL: [u8; 1] = [0];

pub(super) struct RegionStream {
    rings: Rings<Slot>,
    met: Met,
    /// Threads of this process that wait to read, and to write, ...
    readers: AtomicU32,
    writers: AtomicU32,
    /// ... and what wakes them if another thread has heard the bell.
    readable: Waker,
    writable: Waker,
    /// This process has abandoned the stream; another one uses it.
    abandoned: AtomicBool,
    /// How long a thread looks before it sleeps.
    patience: Patience,
}

/// Looking is worth while for as long as bells take in both directions: each goes through the
/// network of a virtual machine.
const BELLS: Duration = Duration::from_millis(2);

fn patience() -> Patience {
    let usual = SpinLimits::default();
    let most = if usual.most.is_zero() { usual.most } else { usual.most.max(BELLS) };
    let limits = SpinLimits::from_env_or(SpinLimits { most, ..usual });
    Patience::new(limits.least, limits.most)
}

/// A thread is counted as waiting while this lives.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU32) -> Waiting<'a> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RegionStream {
    /// `met` has a socket at its bottom, and carries nothing else from here on.
    pub(super) fn new(slot: Slot, end: End, met: Arc<dyn Stream>) -> io::Result<RegionStream> {
        Ok(RegionStream {
            rings: Rings::new(slot, end),
            met: Met::new(met),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            readable: Waker::new()?,
            writable: Waker::new()?,
            abandoned: AtomicBool::new(false),
            patience: patience(),
        })
    }

    fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            Ok(())
        }
    }

    /// Wakes a thread of the peer's. Where there is no room for a bell, others wait to be heard.
    fn ring(&self) {
        let _ = self.met.stream.write(&[IoSlice::new(&BELL)]);
    }

    /// Takes the bells that have come. Other threads that wait still rely on them.
    fn take_bells(&self, own: Interest) {
        let mut bells = [0; 256];
        loop {
            match self.met.read(&mut bells) {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {
                    self.rings.lose();
                    break;
                }
            }
        }
        let others = |count: &AtomicU32, own| count.load(Ordering::SeqCst) > u32::from(own);
        if others(&self.readers, own.read) && self.rings.look(Interest::READ).read {
            self.readable.wake();
        }
        if others(&self.writers, own.write) && self.rings.look(Interest::WRITE).write {
            self.writable.wake();
        }
    }

    fn close(&self) -> io::Result<()> {
        self.rings.close();
        self.readable.wake();
        self.writable.wake();
        self.met.stream.shutdown()
    }

    /// As [`Stream::wait_beside`], if there is an `other` descriptor.
    fn wait_for(
        &self,
        other: Option<BorrowedFd<'_>>,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<(Readiness, bool)> {
        self.check()?;
        let met = self.met.stream.socket().ok_or(io::ErrorKind::NotConnected)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let began = Instant::now();
        let moves = interest.read || interest.write;
        if moves {
            let most = self.patience.window();
            let mut spin = Spin::when(true, timeout.map_or(most, |timeout| timeout.min(most)));
            while self.rings.look(interest) == Readiness::default() && spin.again() {}
        }
        let _reader = interest.read.then(|| Waiting::new(&self.readers));
        let _writer = interest.write.then(|| Waiting::new(&self.writers));
        let _asleep = self.rings.sleep(interest);
        // Who waits only for the end leaves the bells to those whom they wake.
        let mut heard = PollFlags::RDHUP;
        heard.set(PollFlags::IN, interest.read || interest.write);
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        loop {
            let mut ready = self.rings.look(interest);
            let now = ready != Readiness::default();
            let flag = |wanted| if wanted { PollFlags::IN } else { PollFlags::empty() };
            let mut fds = [
                PollFd::from_borrowed_fd(met, heard),
                PollFd::new(&self.readable, flag(interest.read)),
                PollFd::new(&self.writable, flag(interest.write)),
                PollFd::new(waker.unwrap_or(&self.writable), flag(waker.is_some())),
                PollFd::from_borrowed_fd(other.unwrap_or(met), flag(other.is_some())),
            ];
            let count = poll_until(&mut fds, if now { Some(Instant::now()) } else { deadline })?;
            let found = fds.map(|fd| fd.revents());
            if found[0].contains(PollFlags::IN) {
                self.take_bells(interest);
            }
            if found[0].intersects(gone) {
                self.rings.lose();
                ready.hangup = true;
            }
            if found[1].contains(PollFlags::IN) {
                self.readable.clear_unless(|| self.rings.look(Interest::READ).read);
            }
            if found[2].contains(PollFlags::IN) {
                self.writable.clear_unless(|| self.rings.look(Interest::WRITE).write);
            }
            if count > 0 {
                if moves {
                    self.patience.waited(began.elapsed());
                }
                let seen = self.rings.look(interest);
                (ready.read, ready.write) = (ready.read || seen.read, ready.write || seen.write);
            }
            ready.woken = found[3].contains(PollFlags::IN) && waker.is_some_and(Waker::clear);
            let beside = other.is_some() && found[4].contains(PollFlags::IN);
            if count == 0 || now || beside || ready != Readiness::default() {
                return Ok((ready, beside));
            }
        }
    }
}

impl Stream for RegionStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        match self.rings.read(buffer, || self.ring()) {
            Ok(0) if !buffer.is_empty() => self.met.error().map_or(Ok(0), Err),
            read => read,
        }
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        self.rings.write(buffers, || self.ring()).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => self.met.error().unwrap_or(error),
            _ => error,
        })
    }

    fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
        self.wait_for(None, interest, waker, timeout).map(|(ready, _)| ready)
    }

    fn wait_beside(
        &self,
        other: BorrowedFd<'_>,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<(Readiness, bool)> {
        self.wait_for(Some(other), interest, waker, timeout)
    }

    fn shutdown(&self) -> io::Result<()> {
        self.check()?;
        self.close()
    }

    fn abandon(&self) -> io::Result<()> {
        self.abandoned.store(true, Ordering::Relaxed);
        self.met.stream.abandon()
    }

    fn check_peer(&self) -> io::Result<()> {
        self.met.stream.check_peer()
    }

    fn is_unanswered(&self) -> bool {
        self.met.stream.is_unanswered()
    }

    fn error(&self) -> Option<io::Error> {
        self.met.error()
    }

    fn has_room(&self) -> bool {
        self.rings.has_room()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: false, shares_memory: false, striping: true, quick: true }
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.met.stream.socket()
    }

    fn transport(&self) -> &'static str {
        "ivshmem"
    }

    fn peer(&self) -> String {
        self.met.stream.peer()
    }
}

impl Drop for RegionStream {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Relaxed) {
            let _ = self.close();
        }
    }
}

impl fmt::Debug for RegionStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionStream")
            .field("slot", self.rings.keeper())
            .field("met", &self.met)
            .finish_non_exhaustive()
    }
}
