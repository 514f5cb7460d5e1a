//! The connection that carries a session's commands, which may be lost and replaced by another one.
//!
//! The dispatcher reads from it, repliers write to it, a watcher notices its end, and the thread
//! that reads from the supervisor replaces it: at any time, even while the dispatcher is in a
//! driver call that ends only after the client has received something. The commands handed to the
//! handler and those acknowledged to the client must agree: see [`Connection::take`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_transport::Stream;
use parking_lot::{Condvar, Mutex, MutexGuard};

use outboard_control::messages::Grace;
use outboard_control::meter;

/// The connection as of now.
#[derive(Debug)]
pub(super) struct Connection {
    state: Mutex<ConnectionState>,
    changed: Condvar,
    /// Number of the last command handed to the handler.
    taken: AtomicU64,
    /// How often the connection was replaced.
    epoch: AtomicU64,
    /// The client has said that it is about to go.
    leaving: AtomicBool,
    /// It is memory, which cannot be replaced.
    settled: AtomicBool,
    grace: Option<Grace>,
    /// Held while it is being replaced.
    replacing: Mutex<()>,
}

#[derive(Debug)]
struct ConnectionState {
    stream: Arc<dyn Stream>,
    /// Whose stream that is. Behind `Connection::epoch` while a replacement is being made.
    epoch: u64,
    /// The last attempt of the client that was heard of.
    attempt: u64,
    /// Commands that the client was last told are taken: what it sends next follows them.
    told: u64,
    /// It is lost, and the session ends then.
    ends: Option<Instant>,
}

/// One connection out of those that a session has in turn.
#[derive(Debug, Clone)]
pub(super) struct Current {
    pub(super) stream: Arc<dyn Stream>,
    pub(super) epoch: u64,
}

/// How a connection was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The other side closed it, or its system did when the process ended.
    Closed,
    /// Nothing is heard of the other side, or it cannot be reached.
    Silent,
}

impl End {
    /// What an error of a stream means.
    pub(super) fn of(error: &io::Error) -> End {
        match error.kind() {
            io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown => End::Silent,
            _ => End::Closed,
        }
    }
}

/// What came of waiting for another connection.
pub(super) enum Next {
    /// There is one. The client sends what follows command `told`.
    Connected { current: Current, told: u64 },
    /// Not yet.
    NotYet,
    /// None will come.
    Over,
}

impl Connection {
    pub(super) fn new(stream: Arc<dyn Stream>, grace: Option<Grace>) -> Connection {
        Connection {
            state: Mutex::new(ConnectionState {
                stream,
                epoch: 0,
                attempt: 0,
                told: 0,
                ends: None,
            }),
            changed: Condvar::new(),
            taken: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            settled: AtomicBool::new(false),
            grace,
            replacing: Mutex::new(()),
        }
    }

    /// Whether a lost connection may be replaced.
    pub(super) fn is_resumable(&self) -> bool {
        self.grace().is_some()
    }

    pub(super) fn current(&self) -> Current {
        let state = self.state();
        Current { stream: Arc::clone(&state.stream), epoch: state.epoch }
    }

    /// The session has moved, before its first command, to memory that both sides share; there is
    /// nothing to be lost there.
    pub(super) fn settle(&self, stream: Arc<dyn Stream>) {
        self.state().stream = stream;
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Command `seq`, which came over connection `epoch`, is about to be handled: whether it may
    /// be. If the connection has been replaced, the client may have been told that it was not
    /// taken, and sends it again.
    #[inline]
    pub(super) fn take(&self, seq: u64, epoch: u64) -> bool {
        // Either this thread sees the new epoch, or the thread that makes it sees the command
        // taken: see `replace`.
        self.taken.store(seq, Ordering::SeqCst);
        self.epoch.load(Ordering::SeqCst) == epoch || self.was_told(seq)
    }

    #[cold]
    fn was_told(&self, seq: u64) -> bool {
        // The thread that makes a new epoch holds the lock until it has read how many commands are
        // taken.
        let state = self.state();
        let taken = seq <= state.told;
        if !taken {
            self.taken.store(state.told, Ordering::SeqCst);
        }
        taken
    }

    /// The client is about to go: when the connection ends, so does the session.
    pub(super) fn leave(&self) {
        meter::page().set_ending();
        if self.leaving.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        if let Some(ends) = &mut state.ends {
            *ends = Instant::now();
            self.changed.notify_all();
        }
    }

    /// Waits for a short time until a thread has reported connection `epoch` lost.
    pub(super) fn wait_for_loss(&self, epoch: u64, patience: Duration) {
        let mut state = self.state();
        let unknown = |state: &mut ConnectionState| state.ends.is_none() && state.epoch == epoch;
        self.changed.wait_while_for(&mut state, unknown, patience);
    }

    /// Connection `epoch` is lost.
    pub(super) fn lose(&self, epoch: u64, end: End) {
        let mut state = self.state();
        // One that is being replaced is no loss.
        if self.epoch.load(Ordering::SeqCst) != epoch || state.ends.is_some() {
            return;
        }
        let time = match (self.grace(), end) {
            (Some(grace), End::Closed) => grace.closed,
            (Some(grace), End::Silent) => grace.silent,
            (None, _) => Duration::ZERO,
        };
        let time = if self.leaving.load(Ordering::Relaxed) { Duration::ZERO } else { time };
        // It may be shut down already.
        let _ = state.stream.shutdown();
        if time.is_zero() {
            meter::page().set_ending();
        } else {
            meter::page().set_disconnected(true);
            tracing::info!(
                ?end,
                seconds = time.as_secs_f64(),
                "the connection to the client is lost; the session is kept"
            );
        }
        state.ends = Some(Instant::now() + time);
        self.changed.notify_all();
    }

    /// Waits for the one after connection `epoch`, for at most so long.
    pub(super) fn next(&self, epoch: u64, patience: Duration) -> Next {
        let mut state = self.state();
        let until = Instant::now() + patience;
        loop {
            if state.epoch != epoch && state.epoch == self.epoch.load(Ordering::SeqCst) {
                let current = Current { stream: Arc::clone(&state.stream), epoch: state.epoch };
                return Next::Connected { current, told: state.told };
            }
            let now = Instant::now();
            match state.ends {
                Some(ends) if now >= ends => return Next::Over,
                _ if now >= until => return Next::NotYet,
                ends => {
                    let end = ends.map_or(until, |ends| until.min(ends));
                    self.changed.wait_for(&mut state, end - now);
                }
            }
        }
    }

    /// The thread that replaces the connection holds this.
    pub(super) fn replacing(&self) -> MutexGuard<'_, ()> {
        self.replacing.lock()
    }

    /// Begins to replace the connection for the client's attempt of that number: ends the old one.
    /// Says how many commands have been taken; from here on, none that came over the old one will
    /// be. `None` if the attempt was overtaken, or comes too late.
    pub(super) fn replace(&self, attempt: u64) -> Option<u64> {
        let mut state = self.state();
        let late = state.ends.is_some_and(|ends| Instant::now() >= ends);
        if self.grace().is_none() || attempt <= state.attempt || late {
            return None;
        }
        state.attempt = attempt;
        // The grace time starts anew, should this one fail before it is in use.
        state.ends = None;
        let _ = state.stream.shutdown();
        self.epoch.fetch_add(1, Ordering::SeqCst);
        state.told = self.taken.load(Ordering::SeqCst);
        Some(state.told)
    }

    /// The new connection is there.
    pub(super) fn replaced(&self, stream: Arc<dyn Stream>) -> Current {
        let mut state = self.state();
        state.epoch = self.epoch.load(Ordering::SeqCst);
        state.stream = stream;
        meter::page().set_transport(state.stream.transport());
        meter::page().set_disconnected(false);
        self.changed.notify_all();
        Current { stream: Arc::clone(&state.stream), epoch: state.epoch }
    }

    fn grace(&self) -> Option<Grace> {
        self.grace.filter(|_| !self.settled.load(Ordering::Relaxed))
    }

    fn state(&self) -> MutexGuard<'_, ConnectionState> {
        self.state.lock()
    }
}
