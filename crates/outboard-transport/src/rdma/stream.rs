//! The stream itself.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use outboard_rdma::{Channel, Completion, Part, QueuePair, Remote, WorkError};
use rustix::event::{PollFd, PollFlags};

use super::immediate::{Immediate, Kind};
use super::incoming::{Incoming, Place};
use super::outgoing::Outgoing;
use super::settings::Settings;
use crate::descriptor::{self, poll_until};
use crate::stream::{Capabilities, Interest, Readiness, Stream};
use crate::waker::Waker;

/// What is sent lies in the first of a pair's regions, what comes in the second.
pub(super) const SENT: usize = 0;
pub(super) const RECEIVED: usize = 1;

/// Numbers of works to send: messages with bytes, and without.
const WITH_BYTES: u64 = 0;
const BARE: u64 = 1;

/// How long the end of a stream waits for the peer's adapter to have what was sent.
const LINGER: Duration = Duration::from_secs(1);

/// Which side of the stream this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Sends into the peer's receives; what comes was written into its ring.
    Client,
    /// Writes into the client's ring; what comes is in slots of its own.
    Server {
        /// The client's ring.
        ring: Remote,
    },
}

impl Side {
    pub(super) fn place(self) -> Place {
        match self {
            Side::Client => Place::Ring,
            Side::Server { .. } => Place::Slots,
        }
    }
}

/// What the adapter makes readable, and what wakes a thread that waits for another one's work.
pub(super) struct Events {
    pub(super) channel: Arc<Channel>,
    pub(super) readable: Waker,
    pub(super) writable: Waker,
}

pub(super) struct RdmaStream {
    /// Not destroyed by a process that has abandoned the stream: another one uses it.
    pair: ManuallyDrop<QueuePair>,
    events: ManuallyDrop<Events>,
    /// The stream over which the sides have met.
    met: Arc<dyn Stream>,
    side: Side,
    settings: Settings,
    out: Mutex<Outgoing>,
    back: Mutex<Incoming>,
    /// How many messages this side has used up, which it has told, and how many bytes it has not.
    used: AtomicU32,
    told: AtomicU32,
    untold: AtomicUsize,
    /// How many this side has sent, and how many of them the peer has used up.
    sent: AtomicU32,
    peer_used: AtomicU32,
    /// Threads that wait to read, or for the end, and that wait to write.
    readers: AtomicU32,
    writers: AtomicU32,
    /// Whether the next completion makes the channel readable, by queue.
    armed_received: AtomicBool,
    armed_sent: AtomicBool,
    /// The peer has said that it ends.
    ended: AtomicBool,
    /// The stream over which the sides have met is at its end.
    gone: AtomicBool,
    /// This side has ended.
    closed: AtomicBool,
    abandoned: AtomicBool,
    failure: OnceLock<(io::ErrorKind, String)>,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RdmaStream {
    pub(super) fn new(
        pair: QueuePair,
        events: Events,
        met: Arc<dyn Stream>,
        side: Side,
        settings: Settings,
    ) -> RdmaStream {
        RdmaStream {
            pair: ManuallyDrop::new(pair),
            events: ManuallyDrop::new(events),
            met,
            side,
            settings,
            out: Mutex::new(Outgoing::new(settings)),
            back: Mutex::new(Incoming::new(settings, side.place())),
            used: AtomicU32::new(0),
            told: AtomicU32::new(0),
            untold: AtomicUsize::new(0),
            sent: AtomicU32::new(0),
            peer_used: AtomicU32::new(0),
            readers: AtomicU32::new(0),
            writers: AtomicU32::new(0),
            armed_received: AtomicBool::new(false),
            armed_sent: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            failure: OnceLock::new(),
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.abandoned.load(Ordering::Relaxed) {
            Err(io::ErrorKind::NotConnected.into())
        } else {
            Ok(())
        }
    }

    fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
            || self.gone.load(Ordering::Acquire)
            || self.closed.load(Ordering::Acquire)
            || self.failure.get().is_some()
    }

    fn fail(&self, kind: io::ErrorKind, why: &str) {
        if self.failure.set((kind, format!("the RDMA connection has failed: {why}"))).is_ok() {
            // So all threads of both sides notice it at once.
            let _ = self.met.shutdown();
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        self.events.readable.wake();
        self.events.writable.wake();
    }

    /// Why it has failed, if it has.
    fn failed(&self) -> io::Result<()> {
        match self.failure.get() {
            Some((kind, why)) => Err(io::Error::new(*kind, why.clone())),
            None => Ok(()),
        }
    }

    fn fail_of(&self, error: WorkError) {
        match error {
            WorkError::NoAnswer => {
                self.fail(io::ErrorKind::TimedOut, "the peer's adapter no longer answers")
            }
            WorkError::Flushed => self.fail(io::ErrorKind::ConnectionReset, "it was ended"),
            WorkError::Other(why) => self.fail(io::ErrorKind::ConnectionReset, why),
        }
    }

    /// Has the adapter take the receive again.
    fn post_receive(&self, receive: u64) {
        let message = self.settings.message as usize;
        let part = match self.side {
            Side::Client => None,
            Side::Server { .. } => {
                Some(Part { region: RECEIVED, offset: receive as usize * message, bytes: message })
            }
        };
        if let Err(error) = self.pair.receive(receive, part) {
            self.fail(io::ErrorKind::Other, &error.to_string());
        }
    }

    /// The peer says that it has used up so many messages in all: whether that can be.
    fn is_credited(&self, used: u16) -> bool {
        let before = self.peer_used.load(Ordering::Relaxed) as u16;
        let sent = self.sent.load(Ordering::Acquire) as u16;
        self.peer_used.store(used.into(), Ordering::Release);
        used.wrapping_sub(before) <= sent.wrapping_sub(before)
    }

    /// Takes what has come, also after a failure; wakes other threads that wait for it than the one
    /// that calls, which itself waits for `own`.
    fn progress(&self, back: &mut Incoming, own: Interest) {
        let (mut news, mut credit, mut flushed) = (false, false, false);
        let mut take = |taken: Result<Completion, WorkError>| {
            let completion = match taken {
                Ok(completion) => completion,
                Err(WorkError::Flushed) => return flushed = true,
                Err(error) => return self.fail_of(error),
            };
            let said = completion.immediate.and_then(Immediate::decode);
            let Some(said) = said else {
                return self.fail(io::ErrorKind::InvalidData, "the peer says what nobody says");
            };
            if !self.is_credited(said.used) {
                return self
                    .fail(io::ErrorKind::InvalidData, "the peer has used up what was not sent");
            }
            credit = true;
            match said.kind {
                Kind::Bytes => {
                    if back.arrive(completion.bytes as usize, completion.work).is_err() {
                        self.fail(io::ErrorKind::InvalidData, "the peer sends more than it may");
                    }
                    news = true;
                    // The bytes are in the ring, and the receive is free at once.
                    if self.side == Side::Client {
                        self.post_receive(completion.work);
                    }
                }
                Kind::Bare => self.post_receive(completion.work),
                Kind::End => {
                    self.ended.store(true, Ordering::Release);
                    news = true;
                }
            }
        };
        if let Err(error) = self.pair.received().poll_all(&mut take) {
            self.fail(io::ErrorKind::Other, &error.to_string());
        }
        if flushed && self.failure.get().is_none() {
            // The works to send say why.
            self.collect(&mut lock(&self.out));
            self.fail_of(WorkError::Flushed);
        }
        let others = |count: &AtomicU32, own: bool| count.load(Ordering::SeqCst) > u32::from(own);
        if news && others(&self.readers, own.read) {
            self.events.readable.wake();
        }
        if credit && others(&self.writers, own.write) {
            self.events.writable.wake();
        }
    }

    /// Frees what the adapter has sent and the peer has used up.
    fn collect(&self, out: &mut Outgoing) {
        let mut take = |taken: Result<Completion, WorkError>| match taken {
            Ok(completion) if completion.work == WITH_BYTES => out.is_done(),
            Ok(_) => out.bare_is_done(),
            Err(error) => self.fail_of(error),
        };
        if let Err(error) = self.pair.sent().poll_all(&mut take) {
            self.fail(io::ErrorKind::Other, &error.to_string());
        }
        out.is_used(self.peer_used.load(Ordering::Acquire) as u16);
    }

    /// Sends a message, and with it how much this side has used up.
    fn post(&self, work: u64, kind: Kind, part: Option<Part>) -> io::Result<()> {
        // What is used up meanwhile is told by the next one.
        self.untold.store(0, Ordering::Relaxed);
        let used = self.used.load(Ordering::Acquire);
        self.told.store(used, Ordering::Release);
        let number = Immediate { used: used as u16, kind }.encode();
        let to = match (self.side, part) {
            (Side::Server { ring }, Some(part)) => {
                Some(Remote { address: ring.address + part.offset as u64, rkey: ring.rkey })
            }
            _ => None,
        };
        self.pair.send(work, number, part, to).map_err(|error| {
            self.fail(io::ErrorKind::Other, &error.to_string());
            error.into()
        })
    }

    /// Sends a message without bytes, if there is a place for one.
    fn post_bare(&self, out: &mut Outgoing, kind: Kind) {
        if out.may_send_bare(kind == Kind::End) && self.post(BARE, kind, None).is_ok() {
            out.bare_sent();
        }
    }

    /// Whether the peer should hear how much this side has used up.
    fn owes_word(&self) -> bool {
        let used = self.used.load(Ordering::Acquire);
        let messages = used.wrapping_sub(self.told.load(Ordering::Acquire));
        messages >= self.settings.depth / 4
            || messages > 0 && self.untold.load(Ordering::Relaxed) >= self.settings.ring() / 4
    }

    /// Tells the peer, if it should hear.
    fn tell(&self) {
        if !self.owes_word() || self.is_over() {
            return;
        }
        let mut out = lock(&self.out);
        self.collect(&mut out);
        if self.owes_word() && !self.is_over() {
            self.post_bare(&mut out, Kind::Bare);
        }
    }

    /// Which calls would not block now, for a thread that waits for these itself.
    fn look(&self, interest: Interest) -> Readiness {
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
        let sent = interest.write && lock(&self.out).waits_for_adapter();
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
        Ok(if armed { self.look(interest) } else { ready })
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
        if readers + writers > u32::from(own.read) + u32::from(own.write) {
            let others = Interest { read: readers > 0, write: writers > 0, hangup: false };
            let ready = self.look_before_sleep(others)?;
            if ready.read {
                self.events.readable.wake();
            }
            if ready.write {
                self.events.writable.wake();
            }
        }
        Ok(())
    }

    /// Waits until the peer's adapter has what was sent, for a bounded time.
    fn linger(&self) {
        let end = Instant::now() + LINGER;
        loop {
            let mut out = lock(&self.out);
            self.collect(&mut out);
            if out.is_idle() || self.failure.get().is_some() || Instant::now() > end {
                return;
            }
            drop(out);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Ends both directions; the first time, the peer is told.
    fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.failure.get().is_none() {
            let mut out = lock(&self.out);
            self.collect(&mut out);
            self.post_bare(&mut out, Kind::End);
            drop(out);
            self.linger();
        }
        self.wake_all();
    }

    fn descriptors(&self) -> [std::os::fd::RawFd; 3] {
        let [commands, events] = self.pair.device().descriptors();
        [commands, events, self.events.channel.descriptor()]
    }

    /// Fills a message from the buffers, beginning at `from` of all their bytes.
    fn fill(&self, buffers: &[IoSlice<'_>], from: usize, part: Part) {
        let (mut skip, mut filled) = (from, 0);
        for buffer in buffers {
            if skip >= buffer.len() {
                skip -= buffer.len();
                continue;
            }
            let rest = &buffer[skip..];
            skip = 0;
            let bytes = &rest[..rest.len().min(part.bytes - filled)];
            self.pair.regions()[SENT].write(part.offset + filled, bytes);
            filled += bytes.len();
            if filled == part.bytes {
                return;
            }
        }
    }
}

impl Stream for RdmaStream {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let mut back = lock(&self.back);
        if back.next().is_none() {
            self.progress(&mut back, Interest::default());
        }
        let mut count = 0;
        while let Some((offset, bytes)) = back.next() {
            let bytes = bytes.min(buffer.len() - count);
            if bytes == 0 {
                break;
            }
            self.pair.regions()[RECEIVED].read(offset, &mut buffer[count..count + bytes]);
            count += bytes;
            if let Some((receive, size)) = back.consume(bytes) {
                if self.side != Side::Client {
                    self.post_receive(receive);
                }
                self.untold.fetch_add(size, Ordering::Relaxed);
                self.used.fetch_add(1, Ordering::AcqRel);
            }
        }
        drop(back);
        if count > 0 || buffer.is_empty() {
            self.tell();
            return Ok(count);
        }
        if self.ended.load(Ordering::Acquire) || self.closed.load(Ordering::Acquire) {
            return Ok(0);
        }
        self.failed()?;
        if self.gone.load(Ordering::Acquire) {
            return Ok(0);
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut out = lock(&self.out);
        if out.is_half_full() {
            self.collect(&mut out);
        }
        if out.room().1 == 0 {
            // The peer may have said that it has used up some.
            drop(out);
            self.progress(&mut lock(&self.back), Interest::default());
            out = lock(&self.out);
            self.collect(&mut out);
        }
        self.failed()?;
        if self.is_over() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut written = 0;
        while written < total {
            let (offset, room) = out.room();
            let bytes = room.min(total - written);
            if bytes == 0 {
                break;
            }
            let part = Part { region: SENT, offset, bytes };
            self.fill(buffers, written, part);
            self.sent.fetch_add(1, Ordering::AcqRel);
            self.post(WITH_BYTES, Kind::Bytes, Some(part))?;
            out.sent(bytes);
            written += bytes;
        }
        if written == 0 && total > 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }

    fn wait(
        &self,
        interest: Interest,
        waker: Option<&Waker>,
        timeout: Option<Duration>,
    ) -> io::Result<Readiness> {
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
            let met = self.met.socket().unwrap_or(completions);
            let mut fds = [
                PollFd::from_borrowed_fd(met, PollFlags::RDHUP),
                PollFd::from_borrowed_fd(completions, flag(interest.read || interest.write)),
                PollFd::from_borrowed_fd(reports, PollFlags::IN),
                PollFd::new(&events.readable, flag(interest.read)),
                PollFd::new(&events.writable, flag(interest.write)),
                PollFd::new(waker.unwrap_or(&events.writable), flag(waker.is_some())),
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
            if count == 0 || now || ready != Readiness::default() {
                return Ok(ready);
            }
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        self.check()?;
        self.close();
        self.met.shutdown()
    }

    fn abandon(&self) -> io::Result<()> {
        self.abandoned.store(true, Ordering::Relaxed);
        self.descriptors().into_iter().try_for_each(descriptor::abandon)?;
        self.met.abandon()
    }

    fn check_peer(&self) -> io::Result<()> {
        self.met.check_peer()
    }

    fn is_unanswered(&self) -> bool {
        self.met.is_unanswered()
    }

    fn error(&self) -> Option<io::Error> {
        self.failed().err().or_else(|| self.met.error())
    }

    fn has_room(&self) -> bool {
        let mut out = lock(&self.out);
        self.collect(&mut out);
        !self.is_over() && out.has_much_room()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: false, shares_memory: false, striping: true, quick: true }
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.met.socket()
    }

    fn transport(&self) -> &'static str {
        "rdma"
    }

    fn peer(&self) -> String {
        self.met.peer()
    }
}

impl Drop for RdmaStream {
    fn drop(&mut self) {
        // What another process uses is not destroyed; this one lets its descriptors go.
        if self.abandoned.load(Ordering::Relaxed) {
            return;
        }
        self.close();
        let _ = self.met.shutdown();
        // SAFETY: each is dropped here once, and nothing uses them afterwards.
        unsafe {
            ManuallyDrop::drop(&mut self.pair);
            ManuallyDrop::drop(&mut self.events);
        }
    }
}

impl fmt::Debug for RdmaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaStream")
            .field("device", &self.pair.device().name())
            .field("side", &self.side)
            .field("met", &self.met)
            .finish_non_exhaustive()
    }
}
