//! The connection that carries a link's commands, which may be lost and replaced by another one.
//!
//! A thread that meets an error calls [`Shared::broken`]; the sender thread then connects anew.
//! Meanwhile callers wait in [`Shared::wait_for_connection`], and posted commands wait in the
//! queue.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outboard_transport::Stream;
use outboard_wire::handshake::RefusalCode;
use outboard_wire::handshake::resume::Point;
use outboard_wire::plain_lines;

use super::error::ConnectError;
use super::locks::lock;
use super::shared::Shared;

/// Connects once more, to a session that goes on at this point; within about so long.
pub(super) type Again =
    Box<dyn Fn(Point, Duration) -> Result<(Arc<dyn Stream>, Point), ConnectError> + Send + Sync>;

/// How a link connects again after its connection was lost.
pub(super) struct Resume {
    pub(super) again: Again,
    /// For how long it tries.
    pub(super) grace: Duration,
}

/// One connection out of those that a link has in turn.
#[derive(Debug, Clone)]
pub(super) struct Current {
    pub(super) stream: Arc<dyn Stream>,
    pub(super) epoch: u64,
}

pub(super) struct Connection {
    now: Mutex<Now>,
    /// Whether it is broken.
    down: AtomicBool,
    changed: Condvar,
    resume: Option<Resume>,
    /// The only connection there will be.
    only: Option<Arc<dyn Stream>>,
    /// The descriptor of the connection as of now, for forked children; negative if there is none.
    descriptor: AtomicI32,
}

struct Now {
    current: Current,
    broken: Option<Broken>,
}

#[derive(Clone)]
struct Broken {
    since: Instant,
    reason: String,
}

/// The longest that one attempt may take to connect, and then to be answered.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);
/// The shortest, when there is little time left.
const SHORTEST: Duration = Duration::from_millis(300);
/// Pauses between attempts: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// The descriptor of a stream, as forked children take it.
pub(super) fn descriptor(stream: &dyn Stream) -> i32 {
    stream.socket().map_or(-1, |fd| fd.as_raw_fd())
}

impl Connection {
    pub(super) fn new(stream: Arc<dyn Stream>, resume: Option<Resume>) -> Connection {
        let only = resume.is_none().then(|| Arc::clone(&stream));
        let descriptor = AtomicI32::new(descriptor(&*stream));
        let now = Mutex::new(Now { current: Current { stream, epoch: 0 }, broken: None });
        Connection {
            now,
            down: AtomicBool::new(false),
            changed: Condvar::new(),
            resume,
            only,
            descriptor,
        }
    }

    pub(super) fn is_resumable(&self) -> bool {
        self.resume.is_some()
    }

    pub(super) fn current(&self) -> Current {
        lock(&self.now).current.clone()
    }

    pub(super) fn is_broken(&self) -> bool {
        self.down.load(Ordering::Acquire)
    }

    /// Ends the connection as of now, and wakes all who wait for another.
    pub(super) fn shutdown(&self) {
        let stream = self.current().stream;
        // It may be shut down already; those blocked on it return in any case.
        let _ = stream.shutdown();
        self.changed.notify_all();
    }

    /// In a forked child: closes the child's descriptor of the connection and leaves the parent's
    /// alone. Takes no locks.
    pub(super) fn abandon(&self) {
        match &self.only {
            // The child has no one to tell of an error.
            Some(only) => drop(only.abandon()),
            None => drop(outboard_transport::abandon(self.descriptor.load(Ordering::Acquire))),
        }
    }
}

impl Shared {
    /// The connection of that epoch has failed. If it can be replaced it will be; otherwise this is
    /// the end.
    pub(super) fn broken(&self, epoch: u64, error: &io::Error) {
        // A violation of the protocol would happen again on a new connection.
        if !self.connection.is_resumable() || error.kind() == io::ErrorKind::InvalidData {
            return self.lose_to(error);
        }
        let stream = {
            let mut now = lock(&self.connection.now);
            if now.current.epoch != epoch || now.broken.is_some() || self.is_lost() {
                return;
            }
            let reason = match error.kind() {
                io::ErrorKind::UnexpectedEof => "it was closed".to_owned(),
                _ => error.to_string(),
            };
            self.connection.down.store(true, Ordering::Release);
            now.broken = Some(Broken { since: Instant::now(), reason });
            Arc::clone(&now.current.stream)
        };
        // Threads that are blocked on it return.
        let _ = stream.shutdown();
        self.waker.wake();
    }

    /// Waits until the connection of that epoch has been replaced, or the link is lost.
    pub(super) fn wait_for_connection(&self, epoch: u64) {
        let mut now = lock(&self.connection.now);
        while now.current.epoch == epoch && now.broken.is_some() && !self.is_lost() {
            now = self.connection.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Replaces the connection, if it is broken. Returns when there is one, or the link is lost.
    /// Only the sender thread calls this.
    pub(super) fn reconnect(&self) {
        let Some(resume) = &self.connection.resume else { return };
        let Some(broken) = lock(&self.connection.now).broken.clone() else { return };
        let deadline = broken.since + resume.grace;
        let (mut pause, longest) = PAUSES;
        let mut refusals = Refusals::default();
        let received = self.stop_reading();
        self.say(&format_args!(
            "{}; trying for up to {} seconds to go on",
            broken.reason,
            resume.grace.as_secs_f32()
        ));
        while !self.is_lost() {
            let attempt = lock(&self.write).next_attempt();
            // Five times as long it may be until it is answered.
            let left = deadline.saturating_duration_since(Instant::now()) / 5;
            let timeout = ATTEMPT.min(left.max(SHORTEST));
            let error = match (resume.again)(Point { lane: 0, attempt, received }, timeout) {
                Ok((stream, point)) => return self.connected(&stream, point),
                Err(error) => error,
            };
            if refusals.is_final(&error) {
                return self
                    .lose(&format!("{}, and the session cannot go on: {error}", broken.reason));
            }
            if Instant::now() + pause >= deadline {
                let seconds = resume.grace.as_secs_f32();
                return self.lose(&format!(
                    "{}, and for {seconds} seconds there was no other: {error}",
                    broken.reason
                ));
            }
            let now = lock(&self.connection.now);
            if self.is_lost() {
                return;
            }
            drop(self.connection.changed.wait_timeout(now, pause));
            pause = (pause * 2).min(longest);
        }
    }

    /// Nothing is read from a broken connection any more; how many frames have been received.
    fn stop_reading(&self) -> u64 {
        let mut reading = lock(&self.read);
        // What came before the end counts; the worker may have said why it ended the session.
        while reading.up && matches!(self.read_some(&mut reading), Ok(true)) {}
        reading.up = false;
        reading.incoming.resume();
        reading.incoming.received()
    }

    /// The session goes on over `stream`; the worker has taken `point.received` commands.
    fn connected(&self, stream: &Arc<dyn Stream>, point: Point) {
        let connection = &self.connection;
        let mut writing = lock(&self.write);
        let mut reading = lock(&self.read);
        if let Err(error) = self.send_again(point.received) {
            drop((reading, writing));
            return self.lose(&format!("the server says that it has what was never sent: {error}"));
        }
        let mut now = lock(&connection.now);
        let old = std::mem::replace(&mut now.current.stream, Arc::clone(stream));
        now.current.epoch += 1;
        now.broken = None;
        connection.down.store(false, Ordering::Release);
        // A child that is forked here keeps one of the two open at worst, until it ends or becomes
        // another program.
        connection.descriptor.store(descriptor(&**stream), Ordering::Release);
        (writing.current, reading.current) = (now.current.clone(), now.current.clone());
        (reading.up, reading.part) = (true, 0);
        self.heard();
        drop(now);
        drop((reading, writing, old));
        connection.changed.notify_all();
        if self.is_lost() {
            // It was while nobody could tell the new connection.
            connection.shutdown();
        }
        self.say(&"the session goes on over a new connection");
        self.pass_leadership();
    }

    /// Says what becomes of the connection, if the user wants to know.
    pub(super) fn say(&self, what: &dyn std::fmt::Display) {
        if self.config.talks {
            let what = plain_lines(&what.to_string());
            eprintln!(
                "outboard: connection to {}: {what}",
                self.connection.current().stream.peer()
            );
        }
    }
}

/// What attempts to connect were answered with.
#[derive(Default)]
pub(super) struct Refusals {
    /// Since when nothing but refusals in the clear has come.
    in_the_clear: Option<Instant>,
}

/// For so long a refusal in the clear is not believed where connections are encrypted: who is on
/// the way for a moment does not end a session by it.
const NOT_BELIEVED: Duration = Duration::from_secs(5);

impl Refusals {
    /// Whether another attempt would end no better than the one that has failed so.
    pub(super) fn is_final(&mut self, error: &ConnectError) -> bool {
        let ConnectError::RefusedInTheClear { refusal, .. } = error else {
            self.in_the_clear = None;
            return is_final(error);
        };
        let since = *self.in_the_clear.get_or_insert_with(Instant::now);
        since.elapsed() >= NOT_BELIEVED && !may_pass(refusal.code)
    }
}

/// Whether a refusal says nothing of later attempts.
fn may_pass(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::Busy | RefusalCode::Stopping)
}

fn is_final(error: &ConnectError) -> bool {
    match error {
        ConnectError::Refused { refusal, .. } => !may_pass(refusal.code),
        other => matches!(other, ConnectError::Handshake { .. } | ConnectError::Address(_)),
    }
}
