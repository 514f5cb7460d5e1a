//! The servers: who they are, and what they said last.

use super::kept::Registered;
use super::no::{Kind, No};
use super::rules::{MOST_SERVERS, SILENT_AFTER};
use jiff::Timestamp;
use outboard_pool::api::LeaseUse;
use outboard_pool::words::{Condition, DeviceUuid, LeaseNumber, OwnerName, ServerName};
use std::collections::{BTreeMap, BTreeSet};

/// A server.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) registered: Registered,
    /// When it spoke last, since the broker started.
    pub(super) heard: Option<Timestamp>,
    pub(super) drains: bool,
    /// How busy its devices are, in percent.
    pub(super) loads: BTreeMap<DeviceUuid, u8>,
    /// What its sessions use.
    pub(super) uses: BTreeMap<LeaseNumber, LeaseUse>,
    /// Leases with devices of it, those that are over among them.
    pub(super) leases: BTreeSet<LeaseNumber>,
    /// Leases that it uses although they are over, or that nobody knows.
    pub(super) strays: Vec<LeaseNumber>,
    /// Which start of it spoke last, ...
    start: Option<u64>,
    /// ... and the leases of which that one has said that it refuses them.
    refuses: BTreeSet<LeaseNumber>,
}

impl Known {
    /// One that was kept, or that speaks for the first time.
    pub(super) fn new(registered: Registered) -> Known {
        Known {
            registered,
            heard: None,
            drains: false,
            loads: BTreeMap::new(),
            uses: BTreeMap::new(),
            leases: BTreeSet::new(),
            strays: Vec::new(),
            start: None,
            refuses: BTreeSet::new(),
        }
    }

    /// That start of it speaks, and refuses these leases. Another one has to hear of all again.
    pub(super) fn refuses_also(
        &mut self,
        start: Option<u64>,
        gone: impl Iterator<Item = LeaseNumber>,
    ) {
        if self.start != start {
            self.start = start;
            self.refuses.clear();
        }
        if start.is_some() {
            let own = gone.filter(|lease| self.leases.contains(lease));
            self.refuses.extend(own);
        }
    }

    /// Whether it need not hear that the lease is over.
    pub(super) fn refuses(&self, lease: LeaseNumber) -> bool {
        self.refuses.contains(&lease)
    }

    /// A lease is no more.
    pub(super) fn forget(&mut self, lease: LeaseNumber) {
        self.leases.remove(&lease);
        self.refuses.remove(&lease);
    }

    pub(super) fn is_silent(&self, now: Timestamp) -> bool {
        self.heard.is_none_or(|heard| now.duration_since(heard) > SILENT_AFTER)
    }

    /// Whether it gets leases, if it owes no answer.
    pub(super) fn condition(&self, now: Timestamp, owes: bool) -> Condition {
        if self.is_silent(now) {
            Condition::Silent
        } else if self.drains || owes || !self.strays.is_empty() {
            Condition::Draining
        } else {
            Condition::Ready
        }
    }

    /// Whether sessions of it use the lease.
    pub(super) fn uses(&self, lease: LeaseNumber) -> bool {
        self.uses.contains_key(&lease)
    }
}

/// All servers.
#[derive(Debug, Default)]
pub(super) struct Registry(pub(super) BTreeMap<ServerName, Known>);

impl Registry {
    /// Checks that the owner may speak for that server.
    pub(super) fn admits(&self, name: &ServerName, by: &OwnerName) -> Result<(), No> {
        match self.0.get(name) {
            Some(known) if known.registered.by != *by => Err(No::new(
                Kind::Forbidden,
                format!(
                    "server {name} is registered with a token of another owner; give this server \
                     a name of its own, or a token of the same owner"
                ),
            )),
            None if self.0.len() >= MOST_SERVERS => Err(No::new(
                Kind::Busy,
                format!("the pool has {MOST_SERVERS} servers already; use another pool"),
            )),
            _ => Ok(()),
        }
    }
}
