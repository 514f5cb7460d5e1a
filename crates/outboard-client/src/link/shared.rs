//! What all threads of a link share: the queue, the right to write, the right to read.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use outboard_session::client::{CALL, Incoming, Outgoing};
use outboard_transport::{Memory, Patience, Stream, Waker};
use outboard_wire::{Code, ContextId, Writer};

use super::bulk::state::Bulk;
use super::config::Config;
use super::connection::{Connection, Current, Resume};
use super::error::LinkError;
use super::landing::Landing;
use super::listening::Listening;
use super::locks::lock;
use super::reply::{Calls, Recipient, Reply, Slot, Then};
use super::stats::Counters;
use super::stats::Stats;
use super::write::Writing;

/// Takes what the worker says unasked: the code and the encoded payload. It runs on whichever
/// thread reads, which holds the right to read meanwhile: it must be quick and must not use the
/// link.
pub type NoticeHandler = Box<dyn Fn(u16, &[u8]) + Send + Sync>;

/// Is told the time, and says in how long it wants to be told again, if nothing is posted before.
pub(crate) type WhenIdle = Box<dyn Fn(Instant) -> Option<Duration> + Send + Sync>;

pub(super) struct Shared {
    pub(super) connection: Connection,
    /// Looking for bytes, and writing some, costs next to nothing.
    pub(super) quick: bool,
    /// The system itself writes what is read to where it belongs.
    pub(super) lands: bool,
    /// When a batch left last, in nanoseconds since the start, if that is so.
    pub(super) sent_at: AtomicU64,
    pub(super) start: Instant,
    pub(super) config: Config,
    /// For how long threads that wait for replies spin.
    pub(super) patience: Patience,
    pub(super) notices: NoticeHandler,
    pub(super) queue: Mutex<Queue>,
    /// Held by the one thread that writes.
    pub(super) write: Mutex<Writing>,
    /// Held by the one thread that reads.
    pub(super) read: Mutex<Reading>,
    /// Commands that the worker has taken over, as far as it has said. Kept only where a connection
    /// can be replaced, as what follows.
    pub(super) taken: AtomicU64,
    /// Frames received of the worker, and bytes.
    pub(super) received: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) calls: Mutex<Calls>,
    /// Bytes in the queue as of the last post, for the sender's looks: what a caller appends, it
    /// writes itself. Changed only under the queue's lock.
    pub(super) pending: Apart<AtomicUsize>,
    /// The sender sleeps, or is about to. The sender sets it before its last look at the queue
    /// under the lock, so that a thread that appends after that look sees it.
    pub(super) asleep: AtomicBool,
    /// The sender calls it before it sleeps.
    pub(super) when_idle: OnceLock<WhenIdle>,
    pub(super) waker: Waker,
    /// The process is ending, or the link is.
    pub(super) leaving: AtomicBool,
    lost: OnceLock<Arc<str>>,
    pub(super) bulk: Bulk,
    pub(super) memory: Option<Memory>,
    pub(super) listening: Listening,
    pub(super) counters: Counters,
    /// Since when a thread has waited without receiving anything: milliseconds since the start; 0
    /// if something has come.
    silent: AtomicU64,
}

/// Alone in its cache line (and the one that processors fetch along): the sender looks at it all
/// the time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Apart<T>(pub(super) T);

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) outgoing: Outgoing,
    /// Number of the last command written whole.
    pub(super) written: u64,
    /// The last acknowledgement sent to the worker: frames, and bytes.
    pub(super) told: (u64, u64),
}

/// What the thread that reads has.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) current: Current,
    pub(super) incoming: Incoming,
    /// Whether anything may be read: not while the connection is being replaced.
    pub(super) up: bool,
    /// Bytes of a frame that is not complete, as of when they were last taken for a sign of life.
    pub(super) part: usize,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("stream", &self.connection.current().stream)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
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

impl Shared {
    pub(super) fn new(
        stream: Arc<dyn Stream>,
        config: Config,
        notices: NoticeHandler,
        bulk: Bulk,
        memory: Option<Memory>,
        resume: Option<Resume>,
    ) -> io::Result<Shared> {
        // A thread that never spins does not adjust the time to spin.
        let most = if config.spin.is_zero() { Duration::ZERO } else { config.most_spin };
        let (retain, capabilities) = (resume.is_some(), stream.capabilities());
        let (quick, lands) = (capabilities.quick, capabilities.descriptor && !capabilities.quick);
        let connection = Connection::new(stream, resume);
        let current = connection.current();
        let listening = Listening::new(Patience::new(config.spin, config.lane_spin));
        Ok(Shared {
            connection,
            quick,
            lands,
            sent_at: AtomicU64::new(0),
            start: Instant::now(),
            patience: Patience::new(config.spin, most),
            config,
            notices,
            queue: Mutex::new(Queue { outgoing: Outgoing::new(retain), written: 0, told: (0, 0) }),
            write: Mutex::new(Writing::new(current.clone())),
            read: Mutex::new(Reading { current, incoming: Incoming::new(), up: true, part: 0 }),
            taken: AtomicU64::new(0),
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            calls: Mutex::new(Calls::default()),
            pending: Apart::default(),
            asleep: AtomicBool::new(false),
            when_idle: OnceLock::new(),
            waker: Waker::new()?,
            leaving: AtomicBool::new(false),
            lost: OnceLock::new(),
            bulk,
            memory,
            listening,
            counters: Counters::default(),
            silent: AtomicU64::new(0),
        })
    }

    #[inline]
    pub(super) fn post(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<u64, LinkError> {
        let (seq, first) = {
            let mut queue = self.queue_with_room()?;
            let first = queue.outgoing.pending_bytes() == 0;
            let seq = queue.outgoing.push(op, 0, ctx, encode)?;
            prefetch(queue.outgoing.room());
            // The first of several leaves at once where that takes no system call: to have the
            // sender do it takes longer, all the more if it sleeps.
            let first = first && self.quick && self.is_due();
            if !first {
                self.pending.0.store(queue.outgoing.pending_bytes(), Ordering::Relaxed);
            }
            (seq, first)
        };
        if first && self.write_first(seq)? {
            return Ok(seq);
        }
        if self.asleep.load(Ordering::Relaxed) {
            self.wake_sender();
        }
        Ok(seq)
    }

    /// Appends a command that is not waited for, and writes it, with what is before it. The sender
    /// is not woken for it.
    pub(super) fn send(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<u64, LinkError> {
        let seq = self.queue_with_room()?.outgoing.push(op, 0, ctx, encode)?;
        self.write_up_to(seq)?;
        Ok(seq)
    }

    pub(super) fn call(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<Reply, LinkError> {
        // SAFETY: nothing lands.
        unsafe { self.call_for(op, ctx, encode, None) }
    }

    /// As [`Shared::call`]; the bytes that the command returns may land in that memory.
    ///
    /// # Safety
    /// As of [`Link::call_for_bytes`](super::Link::call_for_bytes).
    pub(super) unsafe fn call_for(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
        memory: Option<(*mut u8, usize)>,
    ) -> Result<Reply, LinkError> {
        let start = Instant::now();
        let slot = Arc::new(Slot::default());
        let seq = self.push_call(op, ctx, encode, Recipient::Thread(Arc::clone(&slot)))?;
        self.counters.calls.add(1);
        // If writing fails, the slot has been told.
        let _ = self.write_up_to(seq);
        // SAFETY: by the contract above.
        let landing = memory.and_then(|(to, len)| unsafe { Landing::new(seq, to, len) });
        let reply = self.receive(&slot, landing);
        let waited = start.elapsed();
        self.patience.waited(waited);
        self.counters.waited_ns.add(waited.as_nanos() as u64);
        reply
    }

    /// Appends a command whose reply is for `recipient`, and returns its number.
    #[inline]
    fn push_call(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
        recipient: Recipient,
    ) -> Result<u64, LinkError> {
        let mut queue = self.queue_with_room()?;
        let seq = queue.outgoing.push(op, CALL, ctx, encode)?;
        // The reply cannot come before the queue's lock is free.
        let mut calls = lock(&self.calls);
        if calls.closed {
            return Err(self.lost());
        }
        calls.pending.insert(seq, recipient);
        Ok(seq)
    }

    /// Sends a command and returns; `then` gets its reply.
    pub(super) fn call_then(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
        then: Then,
    ) -> Result<(), LinkError> {
        let seq = self.push_call(op, ctx, encode, Recipient::Then(then))?;
        // If writing fails, `then` has been told.
        let _ = self.write_up_to(seq);
        Ok(())
    }

    /// The worker has said something.
    #[inline]
    pub(super) fn heard(&self) {
        if self.silent.load(Ordering::Relaxed) != 0 {
            self.silent.store(0, Ordering::Relaxed);
        }
    }

    /// Somebody has waited for so long, and nothing has come. An error if a worker that lives would
    /// have said something: however busy its device is, it says now and then that it is there.
    pub(super) fn not_heard(&self, waited: Duration) -> io::Result<()> {
        let Some(most) = self.config.silence else { return Ok(()) };
        let now = self.start.elapsed();
        let began = now.saturating_sub(waited).as_millis().max(1) as u64;
        let since =
            match self.silent.compare_exchange(0, began, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => began,
                Err(earlier) => earlier,
            };
        if now.saturating_sub(Duration::from_millis(since)) < most {
            return Ok(());
        }
        self.heard();
        let why = format!("the server's worker has said nothing for {} seconds", most.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    }

    pub(super) fn last(&self) -> u64 {
        lock(&self.queue).outgoing.last()
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    pub(super) fn lost(&self) -> LinkError {
        LinkError::Lost(
            self.lost.get().cloned().unwrap_or_else(|| "the reason is not known".into()),
        )
    }

    /// Ends the connection, for the first reason given, and wakes all waiting threads.
    pub(super) fn lose(&self, reason: &str) {
        if self.lost.set(reason.into()).is_err() {
            return;
        }
        self.say(
            &Code::ConnectionLost
                .end(&format!("lost for good, so that all later calls fail: {reason}")),
        );
        self.connection.shutdown();
        let waiting: Vec<Recipient> = {
            let mut calls = lock(&self.calls);
            calls.closed = true;
            calls.pending.drain().map(|(_, recipient)| recipient).collect()
        };
        for recipient in waiting {
            recipient.deliver(Err(self.lost()));
        }
        self.bulk.lose();
        self.listening.lose();
        self.waker.wake();
    }

    /// In a forked child: closes the child's descriptors of the connections and leaves the parent's
    /// alone. Takes no locks.
    pub(super) fn abandon(&self) {
        self.connection.abandon();
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

    #[cold]
    pub(super) fn wake_sender(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            self.waker.wake();
        }
    }

    /// Whether the queue is empty, looked at under its lock.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.queue).outgoing.pending_bytes() == 0
    }
}
