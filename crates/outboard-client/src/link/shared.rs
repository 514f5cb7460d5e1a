//! What all threads of a link share: the connection, the queue of commands on their way, the reader
//! of what the worker says, and the bulk half.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use outboard_session::client::CALL;
use outboard_transport::{Memory, Patience, Stream};
use outboard_wire::{Code, ContextId, Writer, plain_lines};

use super::bulk::state::Bulk;
use super::config::Config;
use super::connection::{Connection, Resume};
use super::error::LinkError;
use super::landing::Landing;
use super::listening::Listening;
use super::queue::Queue;
use super::reader::{NoticeHandler, Reader};
use super::reply::{Recipient, Reply, Slot, Then};
use super::stats::{Counters, Stats};

/// Is told the time, and says in how long it wants to be told again, if nothing is posted before.
pub(crate) type WhenIdle = Box<dyn Fn(Instant) -> Option<Duration> + Send + Sync>;

pub(super) struct Shared {
    pub(super) connection: Connection,
    pub(super) queue: Queue,
    pub(super) reader: Reader,
    pub(super) bulk: Bulk,
    pub(super) listening: Listening,
    pub(super) memory: Option<Memory>,
    pub(super) config: Config,
    /// The sender calls it before it sleeps.
    pub(super) when_idle: OnceLock<WhenIdle>,
    pub(super) counters: Counters,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("stream", &self.connection.current().stream)
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
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
        let (retain, capabilities) = (resume.is_some(), stream.capabilities());
        let quick = capabilities.quick;
        let lands = capabilities.descriptor && !quick;
        let connection = Connection::new(stream, resume);
        let current = connection.current();
        let listening = Listening::new(Patience::new(config.spin, config.lane_spin));
        Ok(Shared {
            connection,
            queue: Queue::new(current.clone(), retain, quick, config.queue)?,
            reader: Reader::new(current, quick, lands, &config, notices),
            bulk,
            listening,
            memory,
            config,
            when_idle: OnceLock::new(),
            counters: Counters::default(),
        })
    }

    #[inline]
    pub(super) fn post(
        &self,
        op: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<u64, LinkError> {
        let commands = self.queue_with_room()?;
        let (seq, first) = self.queue.post(commands, op, ctx, encode)?;
        if first && self.write_first(seq)? {
            return Ok(seq);
        }
        if self.queue.is_sender_asleep() {
            self.queue.wake_sender();
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
        let seq = self.queue_with_room()?.push(op, 0, ctx, encode)?;
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
        self.reader.patience().waited(waited);
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
        let mut commands = self.queue_with_room()?;
        let seq = commands.push(op, CALL, ctx, encode)?;
        // The reply cannot come before the queue's lock is free.
        if self.reader.expect(seq, recipient) { Ok(seq) } else { Err(self.lost()) }
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

    pub(super) fn last(&self) -> u64 {
        self.queue.last()
    }

    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        self.connection.is_lost()
    }

    pub(super) fn lost(&self) -> LinkError {
        self.connection.lost()
    }

    /// Ends the connection, for the first reason given, and wakes all waiting threads.
    pub(super) fn lose(&self, reason: &str) {
        if self.connection.lose(reason) {
            self.say_lost(reason);
            self.cut();
        }
    }

    /// Ends the connection because this process needs it no more.
    pub(super) fn close(&self) {
        self.goodbye();
        if self.connection.lose("it was closed") {
            self.cut();
        }
    }

    fn say_lost(&self, reason: &str) {
        if let Some(what) = &self.config.said_when_lost {
            let what = format!("{what}: {reason}");
            outboard_threads::say(Code::ConnectionLost.end(&plain_lines(&what)));
            return;
        }
        self.say(
            &Code::ConnectionLost
                .end(&format!("lost for good, so that all later calls fail: {reason}")),
        );
    }

    fn cut(&self) {
        self.connection.shutdown();
        for recipient in self.reader.close() {
            recipient.deliver(Err(self.lost()));
        }
        self.bulk.lose();
        self.listening.lose();
        self.queue.waker().wake();
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
        let (calls, (sends, sent)) = (counters.calls.get(), self.queue.counted());
        Stats {
            posted: self.last().saturating_sub(calls),
            calls,
            waited: Duration::from_nanos(counters.waited_ns.get()),
            sends,
            sent,
            received: self.reader.bytes(),
            bulk_sent: counters.bulk_sent.get(),
            bulk_received: counters.bulk_received.get(),
        }
    }

    /// The process is ending: tells the worker, which then need not keep the session. Does not wait
    /// for long.
    pub(super) fn goodbye(&self) {
        self.connection.leave();
        if self.connection.is_resumable() && !self.is_lost() && !self.connection.is_broken() {
            self.queue.goodbye();
        }
    }

    /// Says what becomes of the connection, if the user wants to know.
    pub(super) fn say(&self, what: &dyn fmt::Display) {
        if self.config.talks {
            let what = plain_lines(&what.to_string());
            let peer = self.connection.current().stream.peer();
            outboard_threads::say(format_args!("connection to {peer}: {what}"));
        }
    }
}
