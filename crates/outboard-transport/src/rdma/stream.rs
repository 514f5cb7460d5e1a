//! The stream itself: its state, and what callers see.

mod messages;
mod waiting;

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use outboard_rdma::{Channel, Part, QueuePair, Remote, WorkError};

use super::immediate::Kind;
use super::incoming::{Incoming, Place};
use super::outgoing::Outgoing;
use super::settings::Settings;
use crate::descriptor;
use crate::locks::lock;
use crate::met::Met;
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
    /// The stream over which the sides have met, and whether it ends with this one: until they have
    /// moved for good, they may go on over it.
    met: Met,
    ends_met: AtomicBool,
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
            met: Met::new(met),
            ends_met: AtomicBool::new(false),
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
            let _ = self.end_met();
            self.wake_all();
        }
    }

    /// The sides have moved: the stream over which they have met carries nothing any more.
    pub(super) fn leave_met(&self) {
        self.ends_met.store(true, Ordering::SeqCst);
        if self.failure.get().is_some() {
            let _ = self.end_met();
        }
    }

    fn end_met(&self) -> io::Result<()> {
        if self.ends_met.load(Ordering::SeqCst) { self.met.stream.shutdown() } else { Ok(()) }
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
        if self.failure.get().is_none() && self.ends_met.load(Ordering::SeqCst) {
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
            return self.met.error().map_or(Ok(0), Err);
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
            return Err(self.met.error().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into()));
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
        self.close();
        self.end_met()
    }

    fn abandon(&self) -> io::Result<()> {
        self.abandoned.store(true, Ordering::Relaxed);
        self.descriptors().into_iter().try_for_each(descriptor::abandon)?;
        self.met.stream.abandon()
    }

    fn check_peer(&self) -> io::Result<()> {
        self.met.stream.check_peer()
    }

    fn is_unanswered(&self) -> bool {
        self.met.stream.is_unanswered()
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
        self.met.stream.socket()
    }

    fn transport(&self) -> &'static str {
        "rdma"
    }

    fn peer(&self) -> String {
        self.met.stream.peer()
    }
}

impl Drop for RdmaStream {
    fn drop(&mut self) {
        // What another process uses is not destroyed; this one lets its descriptors go.
        if self.abandoned.load(Ordering::Relaxed) {
            return;
        }
        self.close();
        let _ = self.end_met();
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
