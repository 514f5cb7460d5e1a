//! Commands on their way to the worker: what is queued, who writes it, and whether the sender
//! thread sees it.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use outboard_session::client::Outgoing;
use outboard_session::{Batch, ProtocolError, TooLong};
use outboard_transport::{Interest, Waker};
use outboard_wire::{ContextId, Writer};

use super::connection::Current;
use super::locks::{lock, lock_awake, lock_until, try_lock};
use super::stats::Counter;
use super::taken::{Received, TakenOver};

/// Least time between two batches, unless they are full: the worker takes as long for one launch,
/// and each written batch delays the thread that posts the next commands.
pub(super) const GAP: Duration = Duration::from_micros(3);
/// How long an ending process may take to send its goodbye.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The outgoing half of a link.
#[derive(Debug)]
pub(super) struct Queue {
    commands: Mutex<Commands>,
    /// Held by the one thread that writes.
    write: Mutex<Writing>,
    /// Bytes of commands as of the last post, for the sender's looks: what a caller appends, it
    /// writes itself. Changed only under the lock of the commands.
    pending: Apart<AtomicUsize>,
    /// The sender sleeps, or is about to. The sender sets it before its last look at the queue
    /// under the lock, so that a thread that appends after that look sees it.
    asleep: AtomicBool,
    waker: Waker,
    /// Writing costs next to nothing.
    quick: bool,
    start: Instant,
    /// When a batch left last, in nanoseconds since the start, if writing is quick.
    sent_at: AtomicU64,
    /// Bytes of commands that may wait.
    most: usize,
    /// Writes to the connection, and bytes written.
    sends: Counter,
    sent: Counter,
}

/// Alone in its cache line (and the one that processors fetch along): the sender looks at it all
/// the time.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// The commands, under their lock.
#[derive(Debug)]
pub(super) struct Commands {
    outgoing: Outgoing,
    /// Number of the last command written whole.
    written: u64,
    /// The last acknowledgement sent to the worker.
    told: Received,
}

/// What the thread that writes has.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) current: Current,
    /// How often a new connection has been tried.
    attempts: u64,
}

/// Has the processor fetch the memory where the next command will be encoded: another one has read
/// what was there before.
#[inline]
fn prefetch(room: &[std::mem::MaybeUninit<u8>]) {
    #[cfg(target_arch = "x86_64")]
    for line in room.chunks(64).take(3) {
        // SAFETY: a hint, which changes nothing.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_ET0 }>(
                line.as_ptr().cast(),
            )
        };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = room;
}

impl Commands {
    /// Appends a command, which the thread that holds the lock writes itself.
    #[inline]
    pub(super) fn push(
        &mut self,
        op: u16,
        flags: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<u64, TooLong> {
        self.outgoing.push(op, flags, ctx, encode)
    }

    /// Drops the commands that the worker has acknowledged, and acknowledges received frames if
    /// that is due.
    fn take_over(&mut self, taken: &TakenOver) -> Result<(), ProtocolError> {
        self.outgoing.acknowledged(taken.commands())?;
        let received = taken.received();
        if received.is_due_after(self.told) {
            self.outgoing.acknowledge(received.frames);
            self.told = received;
        }
        Ok(())
    }
}

impl Writing {
    /// The number of one more attempt to connect.
    pub(super) fn next_attempt(&mut self) -> u64 {
        self.attempts += 1;
        self.attempts
    }
}

impl Queue {
    /// An empty queue, which takes commands of `most` bytes and writes them to that connection. It
    /// `retain`s them until the worker has taken them over, if the connection can be replaced.
    pub(super) fn new(
        current: Current,
        retain: bool,
        quick: bool,
        most: usize,
    ) -> io::Result<Queue> {
        let outgoing = Outgoing::new(retain);
        Ok(Queue {
            commands: Mutex::new(Commands { outgoing, written: 0, told: Received::default() }),
            write: Mutex::new(Writing { current, attempts: 0 }),
            pending: Apart::default(),
            asleep: AtomicBool::new(false),
            waker: Waker::new()?,
            quick,
            start: Instant::now(),
            sent_at: AtomicU64::new(0),
            most,
            sends: Counter::default(),
            sent: Counter::default(),
        })
    }

    /// The commands, if there is room for more; otherwise the number of the last one.
    #[inline]
    pub(super) fn with_room(&self) -> Result<MutexGuard<'_, Commands>, u64> {
        let commands = lock(&self.commands);
        if commands.outgoing.pending_bytes() < self.most {
            Ok(commands)
        } else {
            Err(commands.outgoing.last())
        }
    }

    /// Appends a command that is not waited for: its number, and whether it is to leave at once.
    /// Then the sender has not been [shown](Self::show) it.
    #[inline]
    pub(super) fn post(
        &self,
        mut commands: MutexGuard<'_, Commands>,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<(u64, bool), TooLong> {
        let first = commands.outgoing.pending_bytes() == 0;
        let seq = commands.outgoing.push(op, 0, ctx, encode)?;
        prefetch(commands.outgoing.room());
        // The first of several leaves at once where that takes no system call: to have the sender
        // do it takes longer, all the more if it sleeps.
        let first = first && self.quick && self.is_due();
        if !first {
            self.note_pending(&commands);
        }
        Ok((seq, first))
    }

    #[inline]
    fn note_pending(&self, commands: &Commands) {
        self.pending.0.store(commands.outgoing.pending_bytes(), Ordering::Relaxed);
    }

    /// Shows the sender what is queued.
    pub(super) fn show(&self) {
        self.note_pending(&lock(&self.commands));
    }

    /// Bytes that the sender has been shown.
    pub(super) fn shown(&self) -> usize {
        self.pending.0.load(Ordering::Relaxed)
    }

    /// Whether the last batch has left long enough ago for the worker to wait for more.
    #[inline]
    fn is_due(&self) -> bool {
        let now = self.start.elapsed().as_nanos() as u64;
        now.saturating_sub(self.sent_at.load(Ordering::Relaxed)) >= GAP.as_nanos() as u64
    }

    /// Number of the last command.
    pub(super) fn last(&self) -> u64 {
        lock(&self.commands).outgoing.last()
    }

    /// Whether the queue is empty, looked at under its lock.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.commands).outgoing.pending_bytes() == 0
    }

    /// The sender is about to sleep, or is awake again.
    pub(super) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    /// Whether the sender sleeps, or is about to.
    #[inline]
    pub(super) fn is_sender_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the sender, if it sleeps.
    #[cold]
    pub(super) fn wake_sender(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    /// What the sender sleeps with, beside its stream.
    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// The right to write, which another thread gives back soon.
    pub(super) fn writing_soon(&self) -> MutexGuard<'_, Writing> {
        lock_awake(&self.write)
    }

    /// The right to write.
    pub(super) fn writing(&self) -> MutexGuard<'_, Writing> {
        lock(&self.write)
    }

    /// The right to write, unless another thread has it or the stream is full.
    #[inline]
    pub(super) fn try_writing(&self) -> Option<MutexGuard<'_, Writing>> {
        try_lock(&self.write).filter(|writing| writing.current.stream.has_room())
    }

    /// Everything that is pending, to be written next and [given back](Self::written); nothing if
    /// command `seq` has been written. The commands that have been `taken` over are dropped, if the
    /// connection can be replaced.
    pub(super) fn take(
        &self,
        seq: u64,
        taken: Option<&TakenOver>,
    ) -> Result<Option<Batch>, ProtocolError> {
        let batch = {
            let mut commands = lock_awake(&self.commands);
            if commands.written >= seq {
                return Ok(None);
            }
            if let Some(taken) = taken {
                commands.take_over(taken)?;
            }
            let batch = commands.outgoing.take();
            if self.pending.0.load(Ordering::Relaxed) != 0 {
                self.pending.0.store(0, Ordering::Relaxed);
            }
            batch
        };
        if batch.is_some() && self.quick {
            self.sent_at.store(self.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
        Ok(batch)
    }

    /// A batch has been written, in whole or, before a cut, in part. How many bytes are kept until
    /// the worker has taken them over.
    pub(super) fn written(&self, batch: Batch) -> usize {
        let mut commands = lock_awake(&self.commands);
        commands.written = batch.last();
        commands.outgoing.done(batch);
        commands.outgoing.retained_bytes()
    }

    /// Counts a write of so many bytes.
    pub(super) fn count(&self, bytes: usize) {
        self.sends.add(1);
        self.sent.add(bytes as u64);
    }

    /// Writes to the connection so far, and bytes written.
    pub(super) fn counted(&self) -> (u64, u64) {
        (self.sends.get(), self.sent.get())
    }

    /// Drops what has been taken over; how many bytes are kept.
    pub(super) fn kept(&self, taken: &TakenOver) -> Result<usize, ProtocolError> {
        let mut commands = lock(&self.commands);
        commands.take_over(taken)?;
        Ok(commands.outgoing.retained_bytes())
    }

    /// Acknowledges received frames now.
    pub(super) fn acknowledge(&self, received: Received) {
        let mut commands = lock(&self.commands);
        commands.outgoing.acknowledge(received.frames);
        commands.told = received;
        self.note_pending(&commands);
        drop(commands);
        self.wake_sender();
    }

    /// All commands after `taken` are pending again.
    pub(super) fn send_again(&self, taken: u64) -> Result<(), ProtocolError> {
        let mut commands = lock(&self.commands);
        commands.outgoing.resume(taken)?;
        commands.written = taken;
        // Whatever was said last may have been lost.
        commands.told = Received::default();
        self.note_pending(&commands);
        Ok(())
    }

    /// The process is ending: tells the worker, which then need not keep the session. Does not wait
    /// for long.
    pub(super) fn goodbye(&self) {
        let deadline = Instant::now() + LAST_WORDS;
        // Another thread may be writing, or have the lock and have been ended with the process.
        let Some(writing) = lock_until(&self.write, deadline) else { return };
        let Some(mut commands) = lock_until(&self.commands, deadline) else { return };
        commands.outgoing.goodbye();
        let Some(batch) = commands.outgoing.take() else { return };
        let mut bytes = batch.bytes();
        while !bytes.is_empty() && Instant::now() < deadline {
            match writing.current.stream.write(&[IoSlice::new(bytes)]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if writing.current.stream.wait(Interest::WRITE, None, Some(left)).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        let whole = bytes.is_empty();
        commands.written = batch.last();
        commands.outgoing.done(batch);
        self.pending.0.store(0, Ordering::Relaxed);
        if !whole {
            // Half a frame may have been written: nothing can follow it there.
            let _ = writing.current.stream.shutdown();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outboard_transport::{Stream, pipe};

    use super::*;

    /// A queue for commands of `most` bytes, and the other end of its connection.
    fn queue(retain: bool, quick: bool, most: usize) -> (Queue, Arc<dyn Stream>) {
        let (stream, other) = pipe::pair().unwrap();
        let current = Current { stream, epoch: 0 };
        (Queue::new(current, retain, quick, most).unwrap(), other)
    }

    fn post(queue: &Queue, bytes: usize) -> (u64, bool) {
        let commands = queue.with_room().unwrap();
        queue.post(commands, 1, ContextId::NONE, |writer| writer.fixed(&vec![0; bytes])).unwrap()
    }

    #[test]
    fn the_first_of_several_leaves_at_once_where_writing_is_quick() {
        let (mut queue, _other) = queue(false, true, 1 << 20);
        queue.start -= GAP;
        assert_eq!(post(&queue, 8), (1, true));
        assert_eq!(queue.shown(), 0, "its thread writes it, not the sender");
        assert_eq!(post(&queue, 8), (2, false));
        assert!(queue.shown() > 16);
        let batch = queue.take(u64::MAX, None).unwrap().unwrap();
        assert_eq!((batch.last(), queue.shown()), (2, 0));
        queue.written(batch);
        assert!(queue.is_empty() && queue.take(2, None).unwrap().is_none());
    }

    #[test]
    fn the_sender_is_shown_all_where_writing_is_a_system_call() {
        let (queue, _other) = queue(false, false, 1 << 20);
        assert_eq!(post(&queue, 8), (1, false));
        assert!(queue.shown() > 8);
        queue.set_asleep(true);
        queue.wake_sender();
        assert!(!queue.is_sender_asleep());
    }

    #[test]
    fn a_full_queue_tells_what_has_to_leave_first() {
        let (queue, _other) = queue(false, false, 100);
        post(&queue, 10);
        post(&queue, 100);
        assert_eq!(queue.with_room().err(), Some(2));
        let batch = queue.take(2, None).unwrap().unwrap();
        assert!(queue.with_room().is_ok(), "it has room while the batch is written");
        queue.written(batch);
    }

    #[test]
    fn what_the_worker_has_not_taken_over_is_sent_again() {
        let (queue, _other) = queue(true, false, 1 << 20);
        (0..3).for_each(|_| _ = post(&queue, 8));
        let batch = queue.take(u64::MAX, Some(&TakenOver::default())).unwrap().unwrap();
        let sent = batch.bytes().to_vec();
        assert_eq!(queue.written(batch), sent.len());
        assert!(queue.send_again(4).is_err(), "it never was sent");
        queue.send_again(1).unwrap();
        let again = queue.take(3, None).unwrap().unwrap();
        assert_eq!(again.bytes(), &sent[sent.len() / 3..]);
    }

    #[test]
    fn a_process_that_ends_says_goodbye_behind_what_is_queued() {
        let (queue, other) = queue(true, false, 1 << 20);
        post(&queue, 8);
        queue.goodbye();
        let mut bytes = [0; 1024];
        let first = other.read(&mut bytes).unwrap();
        assert!(first > 16 && queue.is_empty());
        // Who has the right to write may never give it back.
        let _writing = queue.writing();
        queue.goodbye();
        assert_eq!(other.read(&mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
