//! One session, as the table has it.

use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::attend::Stop;
use crate::about::About;
use crate::pool::Seated;
use crate::traces::{Trail, Whose};
use outboard_control::messages::ToWorker;
use outboard_control::meter::{ENDING, Meter, Reading};

/// A session and its worker.
pub(super) struct Entry {
    pub(super) key: u128,
    /// The name that the client gives itself.
    pub(super) client: String,
    /// The nonces of proofs of the key, if its connections are encrypted.
    pub(super) proofs: Option<HashSet<u128>>,
    /// Further connections on their way to the worker, and what they are.
    pub(super) further: mpsc::Sender<(ToWorker, OwnedFd)>,
    pub(super) stop: mpsc::Sender<Stop>,
    /// What the worker is told without a connection.
    pub(super) orders: mpsc::UnboundedSender<ToWorker>,
    pub(super) about: About,
    pub(super) worker: u32,
    pub(super) devices: Vec<u32>,
    pub(super) since: Instant,
    /// Its state as the supervisor knows it; the meter has what the worker knows.
    pub(super) phase: Cell<Phase>,
    pub(super) meter: Meter,
    /// Its seat at the account of its lease, which is free once the worker is gone.
    pub(super) _seat: Option<Seated>,
    /// The meter's last values: it counts upwards only.
    pub(super) seen: Cell<Reading>,
    /// Its position in its trace.
    pub(super) trail: Trail,
    /// When the client had been welcomed, in nanoseconds since 1970.
    pub(super) welcomed: Cell<Option<u64>>,
    /// Spans that were lost.
    pub(super) dropped: Cell<u64>,
}

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Serving,
    Ending,
}

/// A session's present state, for lists.
pub(crate) struct Shown<'a> {
    pub(crate) session: u64,
    pub(crate) about: &'a About,
    pub(crate) worker: u32,
    pub(crate) devices: &'a [u32],
    pub(crate) client: &'a str,
    pub(crate) age: Duration,
    pub(crate) state: &'static str,
    pub(crate) reading: Reading,
}

impl Entry {
    pub(super) fn read(&self) -> Reading {
        let mut seen = self.seen.get();
        seen.raise_to(&self.meter.read());
        self.seen.set(seen);
        seen
    }

    pub(super) fn whose(&self, session: u64) -> Whose<'_> {
        let (about, client, welcomed) = (&self.about, &*self.client, self.welcomed.get());
        Whose {
            session,
            about,
            client,
            worker: self.worker,
            transport: self.read().transport(),
            welcomed,
        }
    }

    fn state(&self, reading: &Reading) -> &'static str {
        match self.phase.get() {
            Phase::Starting => "starting",
            Phase::Serving => reading.state(),
            Phase::Ending => ENDING,
        }
    }

    /// Whether its client has left, or it is being ended.
    pub(super) fn is_ending(&self) -> bool {
        self.state(&self.read()) == ENDING
    }

    pub(super) fn shown(&self, session: u64) -> Shown<'_> {
        let reading = self.read();
        let state = self.state(&reading);
        let (about, devices, client) = (&self.about, &*self.devices, &*self.client);
        Shown {
            session,
            about,
            worker: self.worker,
            devices,
            client,
            age: self.since.elapsed(),
            state,
            reading,
        }
    }
}
