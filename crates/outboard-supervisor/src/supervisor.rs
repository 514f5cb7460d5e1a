//! What the tasks of a supervisor share.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use outboard_wire::handshake::Local;

use crate::auth::Gate;
use crate::config::Config;
use crate::descriptors::Parts;
use crate::drain::Drain;
use crate::gauges::Gauges;
use crate::pool::Pool;
use crate::sessions::Sessions;
use crate::sharing::Queue;
use crate::tally::Tally;
use crate::upgrade::{Coming, Counter};
use crate::warm::Warm;
use crate::{queues, workers};
use outboard_auth::hellos::Hellos;

/// What the tasks of one supervisor share.
pub(crate) struct Supervisor {
    pub(crate) config: Config,
    /// The description, for clients, of the socket for clients on this machine.
    pub(crate) local: Option<Local>,
    pub(crate) sessions: Sessions,
    pub(crate) warm: Rc<Warm>,
    pub(crate) gauges: Gauges,
    pub(crate) hellos: Hellos,
    /// How the descriptors of this process are divided, ...
    pub(crate) parts: Parts,
    /// ... and how many of the workers may be for those who only ask.
    pub(crate) questions: usize,
    pub(crate) drain: Drain,
    pub(crate) started: Instant,
    /// The clients that are admitted, and those that wait.
    pub(crate) queue: Queue,
    pub(crate) gate: Gate,
    /// Its pool, if it is one of a pool's servers.
    pub(crate) pool: Option<Rc<Pool>>,
    pub(crate) tally: Tally,
    pub(crate) coming: Coming,
    pub(crate) upgrades: Counter,
    /// Sessions of the server before whose workers have not answered yet.
    pub(crate) unanswered: Cell<usize>,
}

impl Supervisor {
    /// How many sessions there may be at once. There are more workers: those for who only asks.
    pub(crate) fn most_sessions(&self) -> usize {
        self.config
            .sharing
            .sessions
            .map_or(self.parts.sessions, |most| most.min(self.parts.sessions))
    }

    /// How many workers there may be yet.
    pub(crate) fn sessions_left(&self) -> usize {
        self.parts.sessions.saturating_sub(self.sessions.len())
    }

    /// How to start a further worker.
    pub(crate) fn worker_order(&self) -> workers::Order<'_> {
        let there = self.sessions.len() + self.warm.len();
        workers::Order {
            command: &self.config.worker,
            log_format: self.config.log_format,
            queues: queues::of_another(there, self.warm.known_devices().unwrap_or(1)),
        }
    }

    /// Why no client would get a session now, if so.
    pub(crate) fn why_not_ready(&self) -> Option<&'static str> {
        if self.drain.has_begun() {
            return Some("the server is stopping");
        }
        let is_full = self.sessions.serving() >= self.most_sessions() || self.sessions_left() == 0;
        is_full.then_some("the server is at its limit of sessions")
    }
}
