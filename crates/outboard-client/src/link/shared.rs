//! What all threads of a link share: the queue, the right to write, the right to read.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use outboard_session::client::{CALL, Incoming, Outgoing, PendingCalls};
use outboard_transport::{Interest, Memory, Patience, Readiness, Stream, Waker};
use outboard_wire::Writer;

use super::bulk::Bulk;
use super::listen::Listening;
use super::receive::Slot;
use super::stats::Counters;
use super::{Config, LinkError, NoticeHandler, Reply, Stats};

pub(super) struct Shared {
    pub(super) stream: Arc<dyn Stream>,
    pub(super) config: Config,
    /// For how long those who wait for replies spin.
    pub(super) patience: Patience,
    pub(super) notices: NoticeHandler,
    queue: Mutex<Queue>,
    /// Held by the one thread that writes.
    write: Mutex<()>,
    /// Held by the one thread that reads.
    pub(super) read: Mutex<Incoming>,
    pub(super) calls: Mutex<Calls>,
    /// Bytes in the queue as of the last post, for the sender's looks: what a caller appends, it writes itself.
    /// Changed only under the queue's lock.
    pub(super) pending: Apart<AtomicUsize>,
    /// The sender sleeps, or is about to. Set by it before it looks at the queue a last time under the lock, so that
    /// whoever appends after that look sees it.
    pub(super) asleep: AtomicBool,
    pub(super) waker: Waker,
    lost: OnceLock<Arc<str>>,
    pub(super) bulk: Bulk,
    pub(super) memory: Option<Memory>,
    pub(super) listening: Listening,
    pub(super) counters: Counters,
}

/// Alone in its cache line (and the one that processors fetch along): the sender looks at it all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

#[derive(Debug)]
struct Queue {
    outgoing: Outgoing,
    /// Number of the last command written whole.
    written: u64,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) pending: PendingCalls<Arc<Slot>>,
    pub(super) closed: bool,
}

/// How long a writer that cannot write waits before it looks again whether someone else still reads.
const READER_CHECK: Duration = Duration::from_millis(20);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stream", &self.stream).field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Locks whether or not another thread panicked meanwhile: nothing here is left half-done by a panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks for the lock for some microseconds before it sleeps for it. Who gives back a lock that somebody sleeps for makes a system call, and that may be a
/// thread that posts.
fn lock_awake<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    const LOOKS: u32 = 200;
    for _ in 0..LOOKS {
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
        std::hint::spin_loop();
    }
    lock(mutex)
}

/// Locks if nobody else has the lock.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Shared {
    pub(super) fn new(
        stream: Arc<dyn Stream>,
        config: Config,
        notices: NoticeHandler,
        bulk: Bulk,
        memory: Option<Memory>,
    ) -> io::Result<Shared> {
        // Who never spins does not learn to.
        let most = if config.spin.is_zero() { Duration::ZERO } else { config.most_spin };
        Ok(Shared {
            stream,
            patience: Patience::new(config.spin, most),
            config,
            notices,
            queue: Mutex::new(Queue { outgoing: Outgoing::new(false), written: 0 }),
            write: Mutex::new(()),
            read: Mutex::new(Incoming::new()),
            calls: Mutex::new(Calls::default()),
            pending: Apart::default(),
            asleep: AtomicBool::new(false),
            waker: Waker::new()?,
            lost: OnceLock::new(),
            bulk,
            memory,
            listening: Listening::default(),
            counters: Counters::default(),
        })
    }

    #[inline]
    pub(super) fn post(&self, op: u16, ctx: u32, encode: impl FnOnce(&mut Writer)) -> Result<u64, LinkError> {
        let seq = {
            let mut queue = self.queue_with_room()?;
            let seq = queue.outgoing.push(op, 0, ctx, encode)?;
            self.pending.0.store(queue.outgoing.pending_bytes(), Ordering::Relaxed);
            seq
        };
        if self.asleep.load(Ordering::Relaxed) {
            self.wake_sender();
        }
        Ok(seq)
    }

    pub(super) fn call(&self, op: u16, ctx: u32, encode: impl FnOnce(&mut Writer)) -> Result<Reply, LinkError> {
        let start = Instant::now();
        let slot = Arc::new(Slot::default());
        let seq = {
            let mut queue = self.queue_with_room()?;
            let seq = queue.outgoing.push(op, CALL, ctx, encode)?;
            // The reply cannot come before the queue's lock is free.
            let mut calls = lock(&self.calls);
            if calls.closed {
                return Err(self.lost());
            }
            calls.pending.insert(seq, Arc::clone(&slot));
            seq
        };
        self.counters.calls.add(1);
        // If writing fails, the slot has been told.
        let _ = self.write_up_to(seq);
        let reply = self.receive(&slot);
        let waited = start.elapsed();
        self.patience.waited(waited);
        self.counters.waited_ns.add(waited.as_nanos() as u64);
        reply
    }

    pub(super) fn flush(&self) -> Result<(), LinkError> {
        self.write_up_to(self.last())
    }

    pub(super) fn last(&self) -> u64 {
        lock(&self.queue).outgoing.last()
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    pub(super) fn lost(&self) -> LinkError {
        LinkError::Lost(self.lost.get().cloned().unwrap_or_else(|| "the reason is not known".into()))
    }

    /// Ends the connection, for the first reason given, and tells everyone who waits.
    pub(super) fn lose(&self, reason: &str) {
        if self.lost.set(reason.into()).is_err() {
            return;
        }
        // It may be shut down already; those blocked on it return in any case.
        let _ = self.stream.shutdown();
        let waiting: Vec<Arc<Slot>> = {
            let mut calls = lock(&self.calls);
            calls.closed = true;
            calls.pending.drain().map(|(_, slot)| slot).collect()
        };
        for slot in waiting {
            slot.deliver(Err(self.lost()));
        }
        self.bulk.lose();
        self.listening.lose();
        self.waker.wake();
    }

    /// In a forked child: lets go of the connections without touching the parent's. Takes no locks.
    pub(super) fn abandon(&self) {
        // The child has no one to tell of an error.
        let _ = self.stream.abandon();
        self.bulk.abandon();
    }

    pub(super) fn lose_to(&self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.lose("the server closed it"),
            _ => self.lose(&error.to_string()),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let calls = counters.calls.get();
        Stats {
            posted: self.last().saturating_sub(calls),
            calls,
            waited: Duration::from_nanos(counters.waited_ns.get()),
            sends: counters.sends.get(),
            sent: counters.sent.get(),
            received: counters.received.get(),
            bulk_sent: counters.bulk_sent.get(),
            bulk_received: counters.bulk_received.get(),
        }
    }

    /// The queue, once it has room.
    #[inline]
    fn queue_with_room(&self) -> Result<MutexGuard<'_, Queue>, LinkError> {
        loop {
            if self.is_lost() {
                return Err(self.lost());
            }
            let queue = lock(&self.queue);
            if queue.outgoing.pending_bytes() < self.config.queue {
                return Ok(queue);
            }
            let last = queue.outgoing.last();
            drop(queue);
            outboard_front::profile::stalled(|| self.write_up_to(last))?;
        }
    }

    #[cold]
    fn wake_sender(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    /// Whether the queue is empty, looked at under its lock.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.queue).outgoing.pending_bytes() == 0
    }

    /// Writes everything pending, at least up to command `seq`. Writing is what a thread holds while it blocks on
    /// the peer; the queue stays open meanwhile.
    pub(super) fn write_up_to(&self, seq: u64) -> Result<(), LinkError> {
        let writing = lock_awake(&self.write);
        let batch = {
            let mut queue = lock_awake(&self.queue);
            if queue.written >= seq {
                return Ok(());
            }
            let batch = queue.outgoing.take();
            if self.pending.0.load(Ordering::Relaxed) != 0 {
                self.pending.0.store(0, Ordering::Relaxed);
            }
            batch
        };
        let Some(batch) = batch else { return Ok(()) };
        let result = self.write_bytes(batch.bytes());
        let mut queue = lock_awake(&self.queue);
        queue.written = batch.last();
        queue.outgoing.done(batch);
        drop(queue);
        drop(writing);
        result.map_err(|error| {
            self.lose_to(&error);
            self.lost()
        })
    }

    fn write_bytes(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.is_lost() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match self.stream.write(&[IoSlice::new(bytes)]) {
                Ok(count) => {
                    self.counters.sends.add(1);
                    self.counters.sent.add(count as u64);
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_to_write()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The worker may be unable to read because we don't: so whoever waits to write also reads, unless someone does.
    fn wait_to_write(&self) -> io::Result<()> {
        let ready = match try_lock(&self.read) {
            Some(mut incoming) => {
                let interest = Interest { read: true, write: true, hangup: false };
                let ready = self.stream.wait(interest, None, Some(outboard_transport::PEER_CHECK));
                let read = match ready {
                    Ok(Readiness { read: true, .. }) => self.read_some(&mut incoming).map(drop),
                    _ => Ok(()),
                };
                drop(incoming);
                self.pass_leadership();
                read?;
                ready?
            }
            None => {
                self.stream.wait(Interest::WRITE, None, Some(READER_CHECK))?;
                return Ok(());
            }
        };
        if ready == Readiness::default() { self.stream.check_peer() } else { Ok(()) }
    }
}
