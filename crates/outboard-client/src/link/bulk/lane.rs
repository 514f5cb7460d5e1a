//! One lane: its connection of the moment, what was sent over it and what it owes the worker.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use outboard_session::receipts::Receipts;
use outboard_session::retained::Retained;
use outboard_transport::lane::write_numbered;
use outboard_transport::{Interest, Stream};
use outboard_wire::handshake::resume::Point;
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::super::connection::descriptor;
use super::super::locks::{lock, try_lock};
use super::table::Job;

/// One connection for bulk data, and those that take its place.
#[derive(Debug)]
pub(super) struct Lane {
    stream: Mutex<Arc<dyn Stream>>,
    /// Its descriptor, for forked children.
    descriptor: AtomicI32,
    /// Held by the one thread that writes.
    pub(super) write: Mutex<Writing>,
    /// Whether its connection is up, as far as known.
    up: AtomicBool,
    /// Whether frames are to be sent again before all others.
    again: AtomicBool,
    kept: Mutex<Retained<(LaneHeader, Body)>>,
    /// Bytes of those that are kept as copies.
    copied: AtomicUsize,
    /// Whether it can go on over another connection.
    resumable: bool,
    attempts: AtomicU64,
    receipts: Receipts,
}

/// What the thread that writes has.
#[derive(Debug)]
pub(super) struct Writing {
    stream: Arc<dyn Stream>,
    /// Room to pack rows in.
    pub(super) scratch: Vec<u8>,
}

/// A frame's bytes, for as long as it may have to be sent again.
#[derive(Debug, Clone)]
pub(super) enum Body {
    Owned(Arc<[u8]>),
    /// In the program's memory, unless the upload has ended.
    Job(Job),
}

/// Most bytes of copies that are kept until the worker has said that it has them: it says so for
/// each mebibyte.
const MOST_COPIED: usize = 512 << 20;

impl Body {
    /// Bytes of this process's memory that it takes.
    fn copied(&self) -> usize {
        match self {
            Body::Owned(bytes) => bytes.len() + size_of::<(LaneHeader, Body)>(),
            Body::Job(_) => 0,
        }
    }
}

impl Lane {
    pub(super) fn new(stream: Arc<dyn Stream>, attempts: u64, resumable: bool) -> Lane {
        Lane {
            descriptor: AtomicI32::new(descriptor(&*stream)),
            write: Mutex::new(Writing { stream: Arc::clone(&stream), scratch: Vec::new() }),
            stream: Mutex::new(stream),
            up: AtomicBool::new(true),
            again: AtomicBool::new(false),
            kept: Mutex::default(),
            copied: AtomicUsize::new(0),
            resumable,
            attempts: AtomicU64::new(attempts),
            receipts: Receipts::default(),
        }
    }

    pub(super) fn stream(&self) -> Arc<dyn Stream> {
        Arc::clone(&lock(&self.stream))
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Ends the connection; its threads find out.
    pub(super) fn down(&self) {
        self.up.store(false, Ordering::Release);
        // It may be shut down already.
        let _ = self.stream().shutdown();
    }

    /// Ends the connection if its peer no longer answers.
    pub(super) fn check(&self) {
        if self.is_up() && self.stream().check_peer().is_err() {
            self.down();
        }
    }

    /// In a forked child: lets go of the connection. Takes no locks.
    pub(super) fn abandon(&self) {
        // The child has no one to tell of an error.
        let _ = outboard_transport::abandon(self.descriptor.load(Ordering::Acquire));
    }

    /// How far this side has come, for one more attempt to connect. Nothing is read meanwhile.
    pub(super) fn next_attempt(&self) -> Point {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        Point { lane: 0, attempt, received: self.receipts.received() }
    }

    /// Goes on over another connection, with a worker that has received `received` frames. Returns
    /// those it has.
    pub(super) fn go_on(&self, stream: Arc<dyn Stream>, received: u64) -> io::Result<Vec<Body>> {
        let mut writing = lock(&self.write);
        let mut kept = lock(&self.kept);
        let gone = kept
            .resume(received)
            .ok_or_else(|| io::Error::other("the server says that it has what was not sent"))?;
        let gone = self.are_gone(gone);
        self.again.store(kept.has_again(), Ordering::Release);
        drop(kept);
        self.receipts.tell();
        writing.stream = Arc::clone(&stream);
        // A child that is forked here keeps one of the two open at worst, until it ends or becomes
        // another program.
        self.descriptor.store(descriptor(&*stream), Ordering::Release);
        *lock(&self.stream) = stream;
        self.up.store(true, Ordering::Release);
        Ok(gone)
    }

    /// The right to write, unless another thread has it or something must go first.
    pub(super) fn try_write(&self) -> Option<MutexGuard<'_, Writing>> {
        if !self.is_up() {
            return None;
        }
        let writing = try_lock(&self.write)?;
        (self.is_up() && !self.again.load(Ordering::Acquire)).then_some(writing)
    }

    /// Whether there is something that only the lane's own writer does, as it may take long.
    pub(super) fn needs_its_writer(&self) -> bool {
        self.is_up() && (self.again.load(Ordering::Acquire) || self.owes())
    }

    /// Keeps a frame. Whether it is to be written now; otherwise it is sent when the lane goes on.
    pub(super) fn put(&self, header: &LaneHeader, body: Body) -> bool {
        self.copied.fetch_add(body.copied(), Ordering::Relaxed);
        let mut kept = lock(&self.kept);
        kept.push((*header, body));
        let now = !kept.has_again() && self.is_up();
        if !now {
            self.again.store(true, Ordering::Release);
        }
        now
    }

    /// These frames are not kept any more.
    fn are_gone(&self, frames: impl Iterator<Item = (LaneHeader, Body)>) -> Vec<Body> {
        let gone: Vec<Body> = frames.map(|(_, body)| body).collect();
        self.copied.fetch_sub(gone.iter().map(Body::copied).sum(), Ordering::Relaxed);
        gone
    }

    /// Whether it keeps more frames than a worker that acknowledges them would leave.
    pub(super) fn keeps_too_much(&self) -> bool {
        self.copied.load(Ordering::Relaxed) > MOST_COPIED
    }

    /// The next frame to send again.
    pub(super) fn next_again(&self) -> Option<(LaneHeader, Body)> {
        lock(&self.kept).next_again().cloned()
    }

    /// All has been sent again that was to be, or the connection is gone.
    pub(super) fn caught_up(&self, writing: &mut Writing) {
        if !self.is_up() {
            return;
        }
        self.again.store(lock(&self.kept).has_again(), Ordering::Release);
        if self.owes() {
            self.acknowledge(writing);
        }
    }

    /// Writes a frame. If that fails, the lane is down, and its reader handles that.
    pub(super) fn write(&self, writing: &mut Writing, header: &LaneHeader, bytes: &[u8]) {
        let received = self.receipts.tell();
        let received = if self.resumable { received } else { 0 };
        if write_numbered(&*writing.stream, header, received, bytes).is_err() {
            self.up.store(false, Ordering::Release);
            let _ = writing.stream.shutdown();
        }
    }

    fn acknowledge(&self, writing: &mut Writing) {
        self.write(
            writing,
            &LaneHeader { kind: LaneKind::Acknowledge, transfer: 0, index: 0, len: 0 },
            &[],
        );
    }

    /// The worker has received so many frames: the low half of the number. Returns what it has.
    pub(super) fn acknowledged(&self, low: u32) -> io::Result<Vec<Body>> {
        let mut kept = lock(&self.kept);
        let gone = kept.acknowledged(low);
        let nonsense =
            || io::Error::new(io::ErrorKind::InvalidData, "what was not sent was acknowledged");
        Ok(self.are_gone(gone.ok_or_else(nonsense)?))
    }

    /// A frame with so many bytes has been received.
    pub(super) fn has_received(&self, bytes: u32) {
        if self.receipts.add(bytes) {
            self.owe();
        }
    }

    /// Acknowledge received frames at once, if there are new ones.
    pub(super) fn owe(&self) {
        if self.resumable {
            self.receipts.owe();
        }
    }

    pub(super) fn owes(&self) -> bool {
        self.receipts.owes()
    }

    /// Tells it, unless it would take long; then the lane's own writer does, which `wake` wakes.
    /// Call it after releasing the right to write: no other thread sends the acknowledgements that
    /// became due meanwhile.
    pub(super) fn settle(&self, wake: impl Fn()) {
        while self.owes() {
            let Some(mut writing) = self.try_write() else { return };
            // A reader must not wait for a peer that may wait for this reader.
            let ready = writing.stream.wait(Interest::WRITE, None, Some(Duration::ZERO));
            if !ready.is_ok_and(|ready| ready.write) {
                drop(writing);
                return wake();
            }
            self.acknowledge(&mut writing);
        }
    }
}

#[cfg(test)]
mod tests {
    use outboard_session::receipts::TELL_BYTES;
    use outboard_transport::pipe;

    use super::*;

    /// A frame comes on the thread that reads, while another one tells of those before it.
    #[test]
    fn word_of_a_frame_is_not_lost_between_two_who_tell_it() {
        const ROUNDS: usize = 60_000;
        let (ours, theirs) = pipe::pair().unwrap();
        let lane = Lane::new(ours, 0, true);
        let (arrived, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Both go on at the same moment, as those who sleep would not.
        let meet = |turn: usize| {
            arrived.fetch_add(1, Ordering::SeqCst);
            let mut spins = 0;
            while arrived.load(Ordering::SeqCst) < 2 * turn {
                spins += 1;
                if spins % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        };
        let lost = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut room = vec![0; 64 << 10];
                while !over.load(Ordering::Relaxed) {
                    let _ = theirs.wait(Interest::READ, None, Some(Duration::from_millis(5)));
                    while theirs.read(&mut room).is_ok_and(|count| count > 0) {}
                }
            });
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    meet(2 * round + 1);
                    if let Some(mut writing) = lane.try_write() {
                        lane.acknowledge(&mut writing);
                        drop(writing);
                    }
                    lane.settle(|| ());
                    meet(2 * round + 2);
                }
            });
            let mut lost = 0;
            for round in 0..ROUNDS {
                meet(2 * round + 1);
                (0..round % 64).for_each(|_| std::hint::spin_loop());
                lane.has_received(TELL_BYTES as u32);
                lane.settle(|| ());
                meet(2 * round + 2);
                let told = lane.receipts.all_told();
                lost += usize::from(!told && !lane.owes());
            }
            over.store(true, Ordering::Relaxed);
            lost
        });
        assert_eq!(lost, 0, "frames that the worker would not be told of until the next one");
    }

    #[test]
    fn a_worker_that_never_says_what_it_has_does_not_fill_memory() {
        let (ours, _theirs) = pipe::pair().unwrap();
        let lane = Lane::new(ours, 0, true);
        let header = LaneHeader { kind: LaneKind::Answer, transfer: 1, index: 0, len: 0 };
        let body: Arc<[u8]> = vec![0; 1 << 20].into();
        let many = (MOST_COPIED >> 20) as u32;
        for _ in 0..many {
            assert!(!lane.keeps_too_much());
            lane.put(&header, Body::Owned(Arc::clone(&body)));
        }
        assert!(lane.keeps_too_much());
        assert_eq!(lane.acknowledged(many).unwrap().len(), many as usize);
        assert!(!lane.keeps_too_much() && lane.copied.load(Ordering::Relaxed) == 0);
    }
}
