//! Waits: for what the adapter makes readable, and for other threads.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::RdmaStream;
use crate::descriptor::poll_until;
use crate::locks::lock;
use crate::stream::{Interest, Readiness};
use crate::waker::Waker;

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

impl RdmaStream {
    /// Which calls would not block now, for a thread that waits for these itself.
    pub(super) fn look(&self, interest: Interest) -> Readiness {
        let mut ready = Readiness::default();
        let arrived = {
            let mut back = lock(&self.back);
            self.progress(&mut back, interest);
            back.next().is_some()
        };
        if interest.write {
            let mut out = lock(&self.out);
            self.collect(&mut out);
            ready.write = out.has_much_room();
        }
        let over = self.is_over();
        ready.read = interest.read && (arrived || over);
        ready.write |= interest.write && over;
        ready.hangup = interest.hangup && over;
        ready
    }

    /// As `look`, and if nothing is ready, the next thing that happens makes the channel readable.
    fn look_before_sleep(&self, interest: Interest) -> io::Result<Readiness> {
        let ready = self.look(interest);
        if ready != Readiness::default() {
            return Ok(ready);
        }
        // Room comes with the peer's word. The adapter's own is seldom later; to be woken by it for
        // every message would cost more than the message.
        // A word that finds no place goes once the adapter has sent one of those before.
        let sent = interest.write && lock(&self.out).waits_for_adapter() || self.owes_word();
        let queues = [
            (interest.read || interest.write, &self.armed_received, self.pair.received()),
            (sent, &self.armed_sent, self.pair.sent()),
        ];
        let mut armed = false;
        for (wanted, is_armed, queue) in queues {
            if wanted && !is_armed.swap(true, Ordering::SeqCst) {
                queue.arm()?;
                armed = true;
            }
        }
        // What has come before it was armed does not make it readable.
        if armed {
            self.tell();
            return Ok(self.look(interest));
        }
        Ok(ready)
    }

    /// Takes the events of the channel. Other threads that wait still rely on it.
    fn take_events(&self, own: Interest) -> io::Result<()> {
        if !self.events.channel.take_events() {
            return Ok(());
        }
        self.armed_received.store(false, Ordering::SeqCst);
        self.armed_sent.store(false, Ordering::SeqCst);
        let readers = self.readers.load(Ordering::SeqCst);
        let writers = self.writers.load(Ordering::SeqCst);
        if readers + writers <= u32::from(own.read) + u32::from(own.write) {
            return Ok(());
        }
        let mut asleep = Interest { read: readers > 0, write: writers > 0, hangup: false };
        while asleep.read || asleep.write {
            let ready = self.look_before_sleep(asleep)?;
            if ready.read {
                self.events.readable.wake();
            }
            if ready.write {
                self.events.writable.wake();
            }
            if ready == Readiness::default() {
                break;
            }
            // For those who sleep on, the channel has yet to become readable again.
            asleep.read &= !ready.read;
            asleep.write &= !ready.write;
        }
        Ok(())
    }

    /// As [`Stream::wait_beside`](crate::Stream::wait_beside), if there is an `other` descriptor.
    pub(super) fn wait_for(
        &self,
        other: Option<BorrowedFd<'_>>,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<(Readiness, bool)> {
        self.check()?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // Who waits only for the end hears of it by the stream over which the sides have met.
        let _reader = interest.read.then(|| Waiting::new(&self.readers));
        let _writer = interest.write.then(|| Waiting::new(&self.writers));
        let events = &self.events;
        loop {
            self.tell();
            let mut ready = self.look_before_sleep(interest)?;
            let now = ready != Readiness::default();
            let flag = |wanted| if wanted { PollFlags::IN } else { PollFlags::empty() };
            // SAFETY: the descriptors are the pair's device's and the channel's, which live as long
            // as this stream.
            let [_, reports, completions] =
                self.descriptors().map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
            // A stream without a socket says by its own `read` that it ends, and is not used here.
            let met = self.met.stream.socket().unwrap_or(completions);
            let mut fds = [
                PollFd::from_borrowed_fd(met, PollFlags::RDHUP),
                PollFd::from_borrowed_fd(completions, flag(interest.read || interest.write)),
                PollFd::from_borrowed_fd(reports, PollFlags::IN),
                PollFd::new(&events.readable, flag(interest.read)),
                PollFd::new(&events.writable, flag(interest.write)),
                PollFd::new(waker.unwrap_or(&events.writable), flag(waker.is_some())),
                PollFd::from_borrowed_fd(other.unwrap_or(met), flag(other.is_some())),
            ];
            let count = poll_until(&mut fds, if now { Some(Instant::now()) } else { deadline })?;
            let found = fds.map(|fd| fd.revents());
            let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
            if found[1].contains(PollFlags::IN) {
                self.take_events(interest)?;
            }
            if found[2].contains(PollFlags::IN) && self.pair.device().failed() {
                self.fail(io::ErrorKind::ConnectionReset, "the adapter reports a failure");
            }
            if found[3].contains(PollFlags::IN) {
                events.readable.clear_unless(|| self.look(Interest::READ).read);
            }
            if found[4].contains(PollFlags::IN) {
                events.writable.clear_unless(|| self.look(Interest::WRITE).write);
            }
            if found[0].intersects(gone) {
                self.gone.store(true, Ordering::Release);
            }
            if count > 0 && !now {
                ready = self.look(interest);
            }
            ready.hangup |= self.is_over();
            ready.woken = found[5].contains(PollFlags::IN) && waker.is_some_and(Waker::clear);
            let beside = other.is_some() && found[6].contains(PollFlags::IN);
            if count == 0 || now || beside || ready != Readiness::default() {
                return Ok((ready, beside));
            }
        }
    }
}
