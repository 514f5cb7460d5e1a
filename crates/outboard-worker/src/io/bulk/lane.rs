//! One lane: its present connection, the frames sent over it, and the acknowledgements that are
//! due.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use outboard_session::receipts::Receipts;
use outboard_session::retained::Retained;
use outboard_transport::lane::{write_frame, write_numbered};
use outboard_transport::{Interest, Stream, write_all};
use outboard_wire::handshake::resume::Point;
use outboard_wire::lane::{LaneHeader, LaneKind};

use super::direct::Direct;
use super::lanes::invalid;
use super::origin::Origin;
use super::{Chunk, lock};
use outboard_control::meter::{self, Direction, Way};

/// One connection for bulk data, and those that take its place.
pub(super) struct Lane {
    /// Which of the client's lanes it is; none if it ends with its connection.
    pub(super) number: Option<u32>,
    reading: Mutex<Reading>,
    /// Told when the reader has stopped, or may go on.
    changed: Condvar,
    /// Held by the one thread that writes.
    pub(super) write: Mutex<Writing>,
    /// Whether its connection is up, as far as known.
    up: AtomicBool,
    /// Whether frames are to be sent again before all others.
    again: AtomicBool,
    kept: Mutex<Retained<Frame>>,
    receipts: Receipts,
}

struct Reading {
    stream: Arc<dyn Stream>,
    epoch: u64,
    /// The client's last attempt to connect.
    attempt: u64,
    /// The reader has let go of the stream.
    stopped: bool,
}

pub(super) struct Writing {
    stream: Arc<dyn Stream>,
}

/// A frame with what it needs to be sent again.
pub(super) struct Frame {
    header: LaneHeader,
    from: Origin,
    sent: Option<Box<dyn FnOnce() + Send>>,
}

/// How long a reader whose connection was ended may take to find out.
const STOPPING: Duration = Duration::from_secs(5);

impl Frame {
    pub(super) fn control(header: LaneHeader) -> Frame {
        Frame { header, from: Origin::Nothing, sent: None }
    }

    /// Bytes behind its header.
    pub(super) fn bytes_long(&self) -> usize {
        self.header.len as usize
    }

    /// The client has it, or needs it no longer.
    pub(super) fn has_come(self) {
        if let Some(sent) = self.sent {
            sent();
        }
    }
}

impl From<Chunk> for Frame {
    fn from(chunk: Chunk) -> Frame {
        Frame { header: chunk.header, from: chunk.from, sent: Some(chunk.sent) }
    }
}

impl Lane {
    pub(super) fn new(stream: Arc<dyn Stream>, point: Option<Point>) -> Lane {
        let attempt = point.map_or(0, |point| point.attempt);
        let reading = Reading { stream: Arc::clone(&stream), epoch: 0, attempt, stopped: false };
        Lane {
            number: point.map(|point| point.lane),
            reading: Mutex::new(reading),
            changed: Condvar::new(),
            write: Mutex::new(Writing { stream }),
            up: AtomicBool::new(true),
            again: AtomicBool::new(false),
            kept: Mutex::default(),
            receipts: Receipts::default(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Ends the connection if its peer no longer answers.
    pub(super) fn check(&self) {
        let stream = self.current().0;
        if self.is_up() && stream.check_peer().is_err() {
            self.down(&*stream);
        }
    }

    /// Ends the connection over `stream`, which is this lane's.
    pub(super) fn down(&self, stream: &dyn Stream) {
        self.up.store(false, Ordering::Release);
        // Its threads find out. It may be shut down already.
        let _ = stream.shutdown();
    }

    /// Ends the connection of the moment.
    pub(super) fn end(&self) {
        let stream = self.current().0;
        self.down(&*stream);
    }

    pub(super) fn current(&self) -> (Arc<dyn Stream>, u64) {
        let reading = lock(&self.reading);
        (Arc::clone(&reading.stream), reading.epoch)
    }

    /// The reader has let go of a connection: waits for the next. Whether there may be one.
    pub(super) fn wait_for_another(&self, epoch: u64) -> bool {
        let mut reading = lock(&self.reading);
        self.down(&*reading.stream);
        reading.stopped = true;
        self.changed.notify_all();
        while self.number.is_some() && reading.epoch == epoch {
            reading = self.changed.wait(reading).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        self.number.is_some()
    }

    /// Ends the connection for the client's attempt of that number, and waits until nothing is read
    /// from it. Whether the attempt is the newest.
    pub(super) fn stop(&self, attempt: u64) -> io::Result<bool> {
        let mut reading = lock(&self.reading);
        if attempt <= reading.attempt {
            return Ok(false);
        }
        reading.attempt = attempt;
        self.down(&*reading.stream);
        let stopped =
            self.changed.wait_timeout_while(reading, STOPPING, |reading| !reading.stopped);
        let (reading, _) = stopped.unwrap_or_else(std::sync::PoisonError::into_inner);
        if reading.stopped { Ok(true) } else { Err(io::Error::other("its thread is busy")) }
    }

    /// Goes on over another connection, with a client that has received `received` frames. Returns
    /// those it has, which need not be kept.
    pub(super) fn go_on(
        &self,
        stream: Arc<dyn Stream>,
        received: u64,
        welcome: impl FnOnce(u64) -> Vec<u8>,
    ) -> io::Result<Vec<Frame>> {
        let mut writing = lock(&self.write);
        let mut kept = lock(&self.kept);
        let nonsense =
            "the client says that it has received what was not sent, or lacks what it had";
        let gone: Vec<Frame> =
            kept.resume(received).ok_or_else(|| io::Error::other(nonsense))?.collect();
        self.again.store(kept.has_again(), Ordering::Release);
        drop(kept);
        let own = self.receipts.tell();
        // It fits into the empty socket buffer, so this does not wait for the client.
        write_all(&*stream, &welcome(own))?;
        writing.stream = Arc::clone(&stream);
        let mut reading = lock(&self.reading);
        (reading.stream, reading.stopped) = (stream, false);
        reading.epoch += 1;
        self.up.store(true, Ordering::Release);
        self.changed.notify_all();
        Ok(gone)
    }

    /// The right to write, unless another thread has it or something must go first.
    pub(super) fn try_write(&self) -> Option<MutexGuard<'_, Writing>> {
        if !self.is_up() {
            return None;
        }
        let writing = match self.write.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.is_up() && !self.again.load(Ordering::Acquire)).then_some(writing)
    }

    /// Whether there is something that only the lane's own writer does, as it may take long.
    pub(super) fn needs_its_writer(&self) -> bool {
        self.is_up() && (self.again.load(Ordering::Acquire) || self.receipts.owes())
    }

    /// Sends the unacknowledged frames again over a new connection, and acknowledges received ones.
    pub(super) fn catch_up(&self, writing: &mut Writing) {
        loop {
            let again =
                lock(&self.kept).next_again().map(|frame| (frame.header, frame.from.clone()));
            match again {
                Some((header, from)) if self.is_up() => {
                    // SAFETY: whoever is told that it has come waits for the right to write first,
                    // which is held here.
                    let bytes = unsafe { from.bytes(header.len as usize) };
                    self.write(writing, &header, &bytes);
                }
                Some(_) => return,
                None => break,
            }
        }
        self.again.store(false, Ordering::Release);
        if self.receipts.owes() {
            self.acknowledge(writing);
        }
    }

    /// Writes a frame, which is kept if it may have to be sent again. Without a connection it is
    /// sent when there is one.
    pub(super) fn put(
        &self,
        writing: &mut Writing,
        frame: Frame,
        direct: &Direct,
    ) -> io::Result<()> {
        let resumes = self.number.is_some();
        let frame = match &frame.from {
            Origin::Device(..) if resumes => self.take_from_device(writing, frame, direct),
            _ => frame,
        };
        let (header, from) = (frame.header, frame.from.clone());
        if self.number.is_none() {
            // SAFETY: they are used only before it is told that the frame has come.
            let bytes = unsafe { from.bytes(header.len as usize) };
            write_frame(&*writing.stream, &header, &bytes)?;
            meter::page().moved(Direction::Out, Way::Lanes, header.len.into());
            frame.has_come();
            return Ok(());
        }
        let mut kept = lock(&self.kept);
        kept.push(frame);
        let first = !kept.has_again();
        drop(kept);
        if first && self.is_up() {
            // SAFETY: as in `catch_up`.
            unsafe { self.write_or_move(writing, &header, &from, direct) };
        } else {
            self.again.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Has an adapter move a chunk's bytes from a device, or else copies them: nobody needs them
    /// there afterwards.
    fn take_from_device(&self, writing: &Writing, mut frame: Frame, direct: &Direct) -> Frame {
        // SAFETY: the bytes are there until `sent` is called below.
        match unsafe { direct.write(&frame.header, &frame.from) } {
            Ok(true) => {
                frame.header.kind = LaneKind::Written;
                frame.from = Origin::Nothing;
            }
            not_moved => {
                if let Err(error) = not_moved {
                    self.lose(writing, &error);
                }
                // SAFETY: as above.
                let bytes = unsafe { frame.from.bytes(frame.bytes_long()) }.into();
                frame.from = Origin::Copied(bytes);
            }
        }
        frame.sent.take().into_iter().for_each(|sent| sent());
        frame
    }

    /// An adapter has failed: what was written may not have come.
    fn lose(&self, writing: &Writing, error: &io::Error) {
        tracing::info!(%error, "a lane ends, and its bytes are sent again");
        self.down(&*writing.stream);
    }

    /// Writes a frame for the first time: without its bytes, if an adapter has moved them.
    ///
    /// # Safety
    /// The bytes are valid for reads.
    unsafe fn write_or_move(
        &self,
        writing: &mut Writing,
        header: &LaneHeader,
        from: &Origin,
        direct: &Direct,
    ) {
        // SAFETY: by the contract above.
        match unsafe { direct.write(header, from) } {
            // SAFETY: as above.
            Ok(false) => self.write(writing, header, &unsafe { from.bytes(header.len as usize) }),
            Ok(true) => {
                self.write(writing, &LaneHeader { kind: LaneKind::Written, ..*header }, &[])
            }
            Err(error) => self.lose(writing, &error),
        }
    }

    fn write(&self, writing: &mut Writing, header: &LaneHeader, bytes: &[u8]) {
        let received = self.receipts.tell();
        if write_numbered(&*writing.stream, header, received, bytes).is_err() {
            self.down(&*writing.stream);
        } else {
            meter::page().moved(Direction::Out, Way::Lanes, header.len.into());
        }
    }

    fn acknowledge(&self, writing: &mut Writing) {
        self.write(
            writing,
            &LaneHeader { kind: LaneKind::Acknowledge, transfer: 0, index: 0, len: 0 },
            &[],
        );
    }

    /// The client has received so many frames: the low half of the number.
    pub(super) fn acknowledged(&self, low: u32) -> io::Result<()> {
        let (gone, none_left) = {
            let mut kept = lock(&self.kept);
            let gone = kept
                .acknowledged(low)
                .ok_or_else(|| invalid("what was not sent was acknowledged"))?;
            let gone: Vec<Frame> = gone.collect();
            (gone, kept.is_empty())
        };
        if none_left && !gone.is_empty() {
            // The last of them may be all but written.
            drop(lock(&self.write));
        }
        for frame in gone {
            frame.has_come();
        }
        Ok(())
    }

    /// A frame with so many bytes has been received.
    pub(super) fn has_received(&self, bytes: u32) {
        if self.receipts.add(bytes) {
            self.owe();
        }
    }

    /// Acknowledge received frames at once, if there are new ones.
    pub(super) fn owe(&self) {
        if self.number.is_some() {
            self.receipts.owe();
        }
    }

    /// Tells it, unless it would take long; then the lane's own writer does, which `wake` wakes.
    /// Call it after releasing the right to write: no other thread sends the acknowledgements that
    /// became due meanwhile.
    pub(super) fn settle(&self, wake: impl Fn()) {
        while self.receipts.owes() {
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
