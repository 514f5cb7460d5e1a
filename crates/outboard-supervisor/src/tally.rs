//! The supervisor's own counters, for metrics.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use outboard_wire::handshake::RefusalCode;

/// Upper bounds for times spent waiting in a queue, in seconds.
pub(super) const QUEUE_BOUNDS: [f64; 6] = [0.1, 1.0, 10.0, 60.0, 600.0, 3600.0];

/// How the start of a session came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Welcomed,
    Refused,
    Failed,
}

/// The kind of worker that a client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Given {
    /// One that was ready.
    Ready,
    /// One that was getting ready.
    Starting,
    /// One that was started for it.
    New,
}

/// Counts that only grow.
#[derive(Default)]
pub(super) struct Tally {
    starts: RefCell<BTreeMap<Outcome, u64>>,
    refusals: RefCell<BTreeMap<&'static str, u64>>,
    given: RefCell<BTreeMap<Given, u64>>,
    queue: Cell<QueueTimes>,
}

/// How long clients have waited for their place: how many up to each bound and longer, and all
/// together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct QueueTimes {
    pub(super) counts: [u64; QUEUE_BOUNDS.len() + 1],
    pub(super) seconds: f64,
}

impl Outcome {
    pub(super) fn name(self) -> &'static str {
        match self {
            Outcome::Welcomed => "welcomed",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
        }
    }
}

impl Given {
    fn name(self) -> &'static str {
        match self {
            Given::Ready => "ready",
            Given::Starting => "starting",
            Given::New => "new",
        }
    }
}

impl Tally {
    /// A client was given a worker.
    pub(super) fn given(&self, given: Given) {
        *self.given.borrow_mut().entry(given).or_default() += 1;
    }

    /// How many clients were given which.
    pub(super) fn workers_given(&self) -> BTreeMap<&'static str, u64> {
        let given = self.given.borrow();
        let all = [Given::Ready, Given::Starting, Given::New];
        all.into_iter().map(|one| (one.name(), given.get(&one).copied().unwrap_or(0))).collect()
    }

    /// A session was to start.
    pub(super) fn started(&self, outcome: Outcome) {
        *self.starts.borrow_mut().entry(outcome).or_default() += 1;
    }

    /// A connection was refused.
    pub(super) fn refused(&self, code: RefusalCode) {
        *self.refusals.borrow_mut().entry(name(code)).or_default() += 1;
    }

    /// A client has got its place, after this time.
    pub(super) fn waited(&self, time: Duration) {
        let mut times = self.queue.get();
        let seconds = time.as_secs_f64();
        let bound =
            QUEUE_BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(QUEUE_BOUNDS.len());
        times.counts[bound] += 1;
        times.seconds += seconds;
        self.queue.set(times);
    }

    pub(super) fn starts(&self) -> BTreeMap<&'static str, u64> {
        // All of them from the beginning: rates need the zero.
        let all = [Outcome::Welcomed, Outcome::Refused, Outcome::Failed];
        let starts = self.starts.borrow();
        all.into_iter()
            .map(|outcome| (outcome.name(), starts.get(&outcome).copied().unwrap_or(0)))
            .collect()
    }

    pub(super) fn refusals(&self) -> BTreeMap<&'static str, u64> {
        self.refusals.borrow().clone()
    }

    pub(super) fn queue_times(&self) -> QueueTimes {
        self.queue.get()
    }
}

/// The name of a refusal's code, for labels.
pub(super) fn name(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::ClientTooOld => "client_too_old",
        RefusalCode::ServerTooOld => "server_too_old",
        RefusalCode::BadHello => "bad_hello",
        RefusalCode::NoSession => "no_session",
        RefusalCode::NoDevice => "no_device",
        RefusalCode::Busy => "busy",
        RefusalCode::WorkerFailed => "worker_failed",
        RefusalCode::Stopping => "stopping",
        RefusalCode::NotAllowed => "not_allowed",
        RefusalCode::NotAuthenticated => "not_authenticated",
        RefusalCode::OverLimit => "over_limit",
        RefusalCode::SessionOver => "session_over",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_counted() {
        let tally = Tally::default();
        assert_eq!(tally.starts()["failed"], 0);
        tally.started(Outcome::Welcomed);
        tally.started(Outcome::Welcomed);
        tally.refused(RefusalCode::Busy);
        tally.waited(Duration::from_millis(500));
        tally.waited(Duration::from_secs(7200));
        assert_eq!((tally.starts()["welcomed"], tally.refusals()["busy"]), (2, 1));
        assert_eq!(
            tally.queue_times(),
            QueueTimes { counts: [0, 1, 0, 0, 0, 0, 1], seconds: 7200.5 }
        );
    }
}
