//! What is kept for the first who wait: decision 87.

use super::rules::{SHORTEST_LOAN, TURN_AGAIN_AFTER};
use jiff::{SignedDuration, Timestamp};
use outboard_pool::placement::{Foreseen, Refusal};
use outboard_pool::state::Pool;
use outboard_pool::words::{Granted, GroupName, Named, OwnerName, Request};
use std::collections::{BTreeMap, BTreeSet};

/// For how long somebody would have devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Until then, and not for less.
    Until(Timestamp),
    /// For as long as possible.
    Open,
}

/// The devices by which the first who waits for their kinds is served at last.
#[derive(Debug)]
pub(super) struct Hold {
    devices: BTreeSet<Named>,
    kinds: BTreeSet<usize>,
    /// When the last lease on the devices ends: they are lent for no longer.
    ends: Timestamp,
    /// Until then they are lent only to those who say that they give them back before.
    closed_until: Timestamp,
}

fn named(granted: &Granted) -> Named {
    Named { server: granted.server.clone(), device: granted.device.clone() }
}

impl Hold {
    fn lends(&self, lasts: Lasts, now: Timestamp) -> bool {
        let is_closed = now < self.closed_until;
        match lasts {
            Lasts::Until(end) if is_closed => end <= self.ends.min(self.closed_until),
            Lasts::Until(end) => end <= self.ends,
            Lasts::Open => !is_closed && self.ends.duration_since(now) >= SHORTEST_LOAN,
        }
    }

    fn has_some_of(&self, devices: &[Granted]) -> bool {
        devices.iter().any(|granted| self.devices.contains(&named(granted)))
    }
}

/// What is kept for whom, and who waits for a quota.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// By the tickets of those for whom they are.
    holds: BTreeMap<u64, Hold>,
    /// Those of the look before, of whom nobody has looked at yet in this one.
    before: BTreeMap<u64, Hold>,
    /// Whether those may be wrong: servers or ends of leases have changed.
    is_stale: bool,
    /// The tickets of the holds that placement leaves alone now.
    apart: BTreeSet<u64>,
    /// Until when the holds of an owner are closed, however often it asks again.
    turns: BTreeMap<OwnerName, Timestamp>,
    owners: BTreeSet<OwnerName>,
    groups: BTreeSet<GroupName>,
}

impl Holds {
    /// Everybody who waits is looked at, the first first.
    pub(super) fn begin(&mut self, pool: &mut Pool, now: Timestamp) {
        self.before = std::mem::take(&mut self.holds);
        self.owners.clear();
        self.groups.clear();
        self.apart.clear();
        pool.set_apart([]);
        self.turns.retain(|_, until| now.duration_since(*until) < TURN_AGAIN_AFTER);
    }

    /// Everybody has been looked at.
    pub(super) fn end(&mut self) {
        self.before.clear();
        self.is_stale = false;
    }

    /// Servers or ends of leases have changed: what is kept for whom is to be found anew.
    pub(super) fn are_stale(&mut self) {
        self.is_stale = true;
    }

    /// Whether more may be lent now than in the moment before.
    pub(super) fn have_opened(&self, before: Timestamp, now: Timestamp) -> bool {
        self.holds.values().any(|hold| before < hold.closed_until && hold.closed_until <= now)
    }

    /// Whether a request is behind one with the same quota.
    pub(super) fn has_quota_of(&self, request: &Request) -> bool {
        self.owners.contains(&request.owner) || self.groups.contains(&request.group)
    }

    /// An owner gets nothing for now.
    pub(super) fn add_owner(&mut self, owner: &OwnerName) {
        self.owners.insert(owner.clone());
    }

    /// A request waits for a quota, if that is why: it keeps no device from others.
    pub(super) fn waits_for_a_quota(&mut self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::OwnerQuota(owner, _) => self.owners.insert(owner.clone()),
            Refusal::GroupQuota(group, _) => self.groups.insert(group.clone()),
            _ => return false,
        };
        true
    }

    /// Whether something is kept of the kinds that would do for the request.
    pub(super) fn have_kind_of(&self, pool: &Pool, request: &Request) -> bool {
        !self.holds.is_empty()
            && pool
                .kinds(request)
                .any(|kind| self.holds.values().any(|of| of.kinds.contains(&kind)))
    }

    /// Has placement leave alone what is not lent for so long.
    pub(super) fn set_apart(&mut self, pool: &mut Pool, lasts: Lasts, now: Timestamp) {
        let not_lent = self.holds.iter().filter(|(_, hold)| !hold.lends(lasts, now));
        let apart: BTreeSet<u64> = not_lent.map(|(ticket, _)| *ticket).collect();
        if apart != self.apart {
            let holds = apart.iter().filter_map(|ticket| self.holds.get(ticket));
            pool.set_apart(holds.flat_map(|hold| &hold.devices));
            self.apart = apart;
        }
    }

    /// Has placement leave nothing alone.
    pub(super) fn open_all(&mut self, pool: &mut Pool) {
        self.apart.clear();
        pool.set_apart([]);
    }

    /// For whom some of these devices are kept, and until when they are lent.
    pub(super) fn lender(&self, devices: &[Granted]) -> Option<(u64, Timestamp)> {
        let of = self.holds.iter().filter(|(_, hold)| hold.has_some_of(devices));
        of.map(|(ticket, hold)| (*ticket, hold.ends)).min_by_key(|(_, ends)| *ends)
    }

    /// Whether what is kept with the ticket is other than these devices.
    pub(super) fn are_elsewhere(&self, ticket: u64, devices: &[Granted]) -> bool {
        self.holds.get(&ticket).is_some_and(|hold| !hold.has_some_of(devices))
    }

    /// Somebody gets devices until then.
    pub(super) fn are_granted(&mut self, devices: &[Granted], until: Timestamp) {
        self.before.retain(|_, hold| until <= hold.ends || !hold.has_some_of(devices));
    }

    /// Who waited with the ticket has been served.
    pub(super) fn is_served(&mut self, ticket: u64, owner: &OwnerName) {
        if self.holds.contains_key(&ticket) || self.before.contains_key(&ticket) {
            self.turns.remove(owner);
        }
    }

    /// What was kept for the ticket before is kept on, if that will do. Whether it does.
    pub(super) fn go_on(&mut self, pool: &Pool, ticket: u64, request: &Request) -> bool {
        if self.is_stale {
            return false;
        }
        self.take_up(pool, ticket, request)
    }

    fn take_up(&mut self, pool: &Pool, ticket: u64, request: &Request) -> bool {
        let Some(mut hold) = self.before.remove(&ticket) else { return false };
        hold.kinds = pool.kinds(request).collect();
        self.holds.insert(ticket, hold);
        true
    }

    /// These devices are kept for the ticket, closed for so long from its owner's first turn on.
    pub(super) fn keep(
        &mut self,
        pool: &Pool,
        ticket: u64,
        request: &Request,
        (foreseen, now): (Foreseen, Timestamp),
        closed_for: SignedDuration,
    ) {
        let turn = self.turns.entry(request.owner.clone()).or_insert(now + closed_for);
        let hold = Hold {
            devices: foreseen.devices.iter().map(named).collect(),
            kinds: pool.kinds(request).collect(),
            ends: foreseen.at,
            closed_until: *turn,
        };
        self.holds.insert(ticket, hold);
    }

    /// Nothing can be foreseen for the ticket: some servers give out nothing now. What was kept for
    /// it before is kept on until it should have been served: the servers may be back by then.
    pub(super) fn bridge(&mut self, pool: &Pool, ticket: u64, request: &Request, now: Timestamp) {
        let is_there = |named: &Named| {
            let server = pool.server(&named.server);
            server.is_some_and(|server| server.devices.iter().any(|of| of.uuid == named.device))
        };
        let before = self.before.get(&ticket);
        if before.is_some_and(|hold| now < hold.ends && hold.devices.iter().all(is_there)) {
            self.take_up(pool, ticket, request);
        }
    }
}
