//! Clients ask, wait and get.

use super::holds::Lasts;
use super::kept::{Aim, Asker, Change, Kept, Lent};
use super::leasing::whole_second;
use super::queue::{Outcome, Ticket, Whose};
use super::{Desk, Kind, No, Rules};
use jiff::Timestamp;
use outboard_pool::api::Ask;
use outboard_pool::lease::Lease;
use outboard_pool::placement::{Placement, Refusal, foresee, within_quotas};
use outboard_pool::words::{Granted, LeaseNumber, Node, NodeName, OwnerName, Purpose};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// How a request stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stands {
    /// It is settled.
    Settled(Outcome),
    /// It waits.
    Waiting {
        /// Its place; the first is 1.
        place: u32,
        /// How many wait.
        of: u32,
        /// What it waits for.
        because: String,
    },
}

/// What somebody has asked for, for a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aimed {
    /// It waits, with this ticket.
    Waits(u64),
    /// It is this lease.
    Has(LeaseNumber),
}

/// What came of looking at a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tried {
    /// It waits no longer.
    IsSettled,
    /// It waits for a quota.
    QuotaLacks,
    /// It waits for devices, and so does every other one that asks for the same.
    DevicesLack,
}

/// What those wait for to whom nothing is lent.
const KEPT: &str = "what is free is kept for a request that came before; who needs it for a shorter \
                    time and says so (--for) may get it meanwhile";

/// For how long it would have devices that it gets now.
fn lasts(ask: &Ask, rules: &Rules, now: Timestamp) -> Lasts {
    // A scheduler that does not say for how long has an end of its own in mind.
    if ask.for_seconds.is_none() && ask.life_seconds.is_none() {
        return Lasts::Open;
    }
    Lasts::Until(whole_second(now) + rules.time_of(ask.for_seconds))
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> No {
        let kind = match refusal {
            Refusal::Malformed(_) => Kind::Malformed,
            _ => Kind::Unavailable,
        };
        No::new(kind, refusal.to_string())
    }
}

/// A refusal by a pool of which nothing is in use.
fn never(refusal: Refusal) -> No {
    if refusal.may_pass() {
        let sentence = format!("the pool could not give that if nothing were in use: {refusal}");
        return No::new(Kind::Unavailable, sentence);
    }
    refusal.into()
}

impl Desk {
    /// Somebody asks. Returns a ticket, by which [`Desk::stands`] knows how the request stands.
    ///
    /// # Errors
    ///
    /// If it cannot be had, or not without waiting longer than the request allows.
    pub fn ask(&mut self, ask: Ask, by: Asker, now: Timestamp) -> Result<u64, No> {
        self.ask_for_job(ask, BTreeSet::new(), by, now)
    }

    /// The same for a job, which runs on these nodes.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn ask_for_job(
        &mut self,
        ask: Ask,
        nodes: BTreeSet<NodeName>,
        by: Asker,
        now: Timestamp,
    ) -> Result<u64, No> {
        ask.check()?;
        if let Some(number) = self.asked_before(&ask, &nodes, &by, now)? {
            return Ok(number);
        }
        // What cannot be had from an idle pool would keep others from getting something for ever.
        self.rules.policy.place(&self.idle, &ask.request).map_err(never)?;
        let has_time = ask.request.wait_seconds > 0;
        let owner = ask.request.owner.clone();
        self.serve_the_queue(now);
        let ticket = Ticket { ask, nodes, by, since: now, asked_after: now, because: None };
        let number = self.queue.enter(ticket)?;
        self.try_one(number, now);
        if has_time || self.queue.outcome(number).is_some() {
            return Ok(number);
        }
        let because = self.because(number);
        self.queue.leave(number);
        self.is_worth_a_look = true;
        tracing::debug!(%owner, because, "refused: it would have to wait");
        Err(No::new(Kind::Unavailable, because))
    }

    /// A ticket of what the same asker has or waits for already, for the same purpose.
    fn asked_before(
        &mut self,
        ask: &Ask,
        nodes: &BTreeSet<NodeName>,
        by: &Asker,
        now: Timestamp,
    ) -> Result<Option<u64>, No> {
        let Some(purpose) = &ask.purpose else { return Ok(None) };
        let aimed = self.with_purpose(&by.name, purpose);
        let before = match aimed {
            None => return Ok(None),
            Some(Aimed::Waits(number)) => {
                let ticket = self.queue.waiting.get(&number);
                ticket.map(|ticket| (&ticket.ask.client_key, &ticket.nodes))
            }
            Some(Aimed::Has(lease)) => {
                self.leases.get(&lease).map(|kept| (&kept.lease.client_key, &kept.nodes))
            }
        };
        if before != Some((&ask.client_key, nodes)) {
            let is_key = before.is_none_or(|(key, _)| *key != ask.client_key);
            let bound = if is_key {
                "is bound to another key: show that one, or end it"
            } else {
                "is for other nodes: end it"
            };
            let asker = &by.name;
            let sentence = format!("what {asker} has asked for as {purpose} {bound} and ask again");
            return Err(No::new(Kind::Unavailable, sentence));
        }
        Ok(aimed.map(|aimed| match aimed {
            Aimed::Waits(number) => number,
            Aimed::Has(lease) => {
                let number = self.queue.number();
                if let Some(whose) = self.whose(lease) {
                    self.queue.settle(number, whose, Outcome::Granted(lease), now);
                }
                number
            }
        }))
    }

    /// What somebody has asked for, for a purpose.
    #[must_use]
    pub fn with_purpose(&self, asker: &OwnerName, purpose: &Purpose) -> Option<Aimed> {
        let aim: Aim = (asker.clone(), purpose.clone());
        let lease = || self.aims.get(&aim).copied().map(Aimed::Has);
        self.queue.with(&aim).map(Aimed::Waits).or_else(lease)
    }

    /// The lease of a job that runs on that node.
    #[must_use]
    pub fn job_on(&self, node: &Node, purpose: &Purpose) -> Option<LeaseNumber> {
        let aim: Aim = (node.scheduler.clone(), purpose.clone());
        let number = *self.aims.get(&aim)?;
        self.leases.get(&number)?.nodes.contains(&node.name).then_some(number)
    }

    /// How a request stands, and that its owner still asks after it.
    ///
    /// # Errors
    ///
    /// If there is no such ticket.
    pub fn stands(&mut self, number: u64, now: Timestamp) -> Result<Stands, No> {
        if self.queue.whose(number).is_none() {
            return Err(No::ticket(number));
        }
        if let Some(outcome) = self.queue.outcome(number) {
            return Ok(Stands::Settled(outcome.clone()));
        }
        if let Some(ticket) = self.queue.waiting.get_mut(&number) {
            ticket.asked_after = now;
        }
        let of = u32::try_from(self.queue.waiting.len()).unwrap_or(u32::MAX);
        Ok(Stands::Waiting { place: self.queue.place(number), of, because: self.because(number) })
    }

    /// Whose ticket it is.
    #[must_use]
    pub fn whose_ticket(&self, number: u64) -> Option<Whose> {
        self.queue.whose(number)
    }

    /// A request leaves the queue. One that has a lease meanwhile gives it back.
    pub fn withdraw(&mut self, number: u64, now: Timestamp) {
        match self.queue.outcome(number) {
            Some(Outcome::Granted(lease)) => {
                self.finish(*lease, "the request for it was withdrawn", now);
            }
            Some(Outcome::Refused(_)) => {}
            None => {
                self.queue.leave(number);
                self.is_worth_a_look = true;
            }
        }
    }

    /// Those at the front of the queue, for whom each place counts.
    pub fn front(&self, count: usize) -> impl Iterator<Item = u64> {
        self.queue.waiting.keys().take(count).copied()
    }

    pub(super) fn drop_tickets(&mut self, which: impl Fn(&Ticket) -> bool) {
        let dropped = self.queue.waiting.iter().filter(|(_, ticket)| which(ticket));
        let dropped: Vec<u64> = dropped.map(|(number, _)| *number).collect();
        for number in dropped {
            self.queue.leave(number);
            self.is_worth_a_look = true;
        }
    }

    /// Refuses those who wait for what an idle pool could not give any more.
    pub(super) fn refuse_what_waits_in_vain(&mut self, now: Timestamp) {
        let waiting = self.queue.waiting.iter();
        let in_vain: Vec<(u64, No)> = waiting
            .filter_map(|(number, ticket)| {
                let placed = self.rules.policy.place(&self.idle, &ticket.ask.request);
                Some((*number, never(placed.err()?)))
            })
            .collect();
        for (number, no) in in_vain {
            let Some(ticket) = self.queue.leave(number) else { continue };
            self.queue.settle(number, ticket.whose(), Outcome::Refused(no), now);
        }
    }

    /// Gives to those who wait, the first first.
    pub(super) fn serve_the_queue(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.is_worth_a_look) {
            return;
        }
        self.holds.begin(&mut self.pool, now);
        let mut firsts = self.queue.firsts();
        while let Some(Reverse((number, demand))) = firsts.pop() {
            let next = self.queue.next(number, &demand);
            if self.try_one(number, now) == Tried::DevicesLack {
                continue;
            }
            firsts.extend(next.map(|next| Reverse((next, demand))));
        }
        self.holds.end();
        self.take_back_loans();
    }

    /// Gives a request what it asks for, if that is free and not kept for somebody before it.
    fn try_one(&mut self, number: u64, now: Timestamp) -> Tried {
        let Some(ticket) = self.queue.waiting.get_mut(&number) else { return Tried::IsSettled };
        let request = &ticket.ask.request;
        if self.holds.has_quota_of(request) {
            ticket.because = None;
            return Tried::QuotaLacks;
        }
        if let Err(because) = self.owners.may_get(&request.owner, now) {
            ticket.because = Some(because);
            self.holds.add_owner(&request.owner);
            return Tried::QuotaLacks;
        }
        self.holds.set_apart(&mut self.pool, lasts(&ticket.ask, &self.rules, now), now);
        match self.rules.policy.place(&self.pool, request) {
            Ok(devices) => self.grant(number, devices, now),
            Err(refusal) if refusal.may_pass() => return self.must_wait(number, &refusal, now),
            Err(refusal) => {
                let whose = ticket.whose();
                self.queue.leave(number);
                self.queue.settle(number, whose, Outcome::Refused(refusal.into()), now);
            }
        }
        Tried::IsSettled
    }

    /// A request waits. The first one for some kinds of devices is kept those by which it can be
    /// served at last.
    fn must_wait(&mut self, number: u64, refusal: &Refusal, now: Timestamp) -> Tried {
        let Some(ticket) = self.queue.waiting.get_mut(&number) else { return Tried::IsSettled };
        let request = &ticket.ask.request;
        if self.holds.waits_for_a_quota(refusal) {
            ticket.because = Some(refusal.to_string());
            return Tried::QuotaLacks;
        }
        if self.holds.have_kind_of(&self.pool, request) {
            self.holds.open_all(&mut self.pool);
            let is_there = self.rules.policy.place(&self.pool, request).is_ok();
            ticket.because = is_there.then(|| KEPT.into());
            return Tried::DevicesLack;
        }
        ticket.because = Some(refusal.to_string());
        if request.wait_seconds == 0 || self.holds.go_on(&self.pool, number, request) {
            return Tried::DevicesLack;
        }
        let having = self.leases.values().filter(|kept| kept.has_devices());
        let ends = having.map(|kept| (kept.last_end(), kept.lease.number));
        let Some(foreseen) = foresee(&self.rules.policy, &self.pool, request, ends) else {
            self.holds.bridge(&self.pool, number, request, now);
            if let Some(away) = self.servers.away(now) {
                ticket.because = Some(format!("{refusal}. {away}"));
            }
            return Tried::DevicesLack;
        };
        // Who could not have them then for a quota of its own keeps them from nobody.
        if let Err(refusal) = within_quotas(&self.pool, request, &foreseen.devices)
            && self.holds.waits_for_a_quota(&refusal)
        {
            ticket.because = Some(refusal.to_string());
            return Tried::QuotaLacks;
        }
        self.holds.keep(&self.pool, number, request, (foreseen, now), self.rules.hold);
        Tried::DevicesLack
    }

    fn grant(&mut self, ticket_number: u64, devices: Vec<Granted>, now: Timestamp) {
        let Some(ticket) = self.queue.leave(ticket_number) else { return };
        self.holds.is_served(ticket_number, &ticket.ask.request.owner);
        let whose = ticket.whose();
        let nodes = ticket.nodes;
        let Ask { request, client_key, for_seconds, purpose, life_seconds } = ticket.ask;
        let number = LeaseNumber(self.next);
        self.next += 1;
        let begin = whole_second(now);
        let otherwise = begin + self.rules.time_of(for_seconds);
        let lender = self.holds.lender(&devices);
        let lent = lender.map(|(for_ticket, until)| Lent { for_ticket, until, otherwise });
        let renewable_until = lent.as_ref().map_or(otherwise, |lent| otherwise.min(lent.until));
        self.holds.are_granted(&devices, renewable_until);
        let (owner, group) = (request.owner, request.group);
        if let Err(wrong) = self.pool.grant(number, &owner, &group, devices.clone()) {
            // It was placed on this very state.
            tracing::error!(%wrong, "what was placed is not free");
            let no = No::new(Kind::Busy, "the broker has erred; ask again");
            return self.queue.settle(ticket_number, whose, Outcome::Refused(no), now);
        }
        for granted in &devices {
            if let Some(known) = self.servers.0.get_mut(&granted.server) {
                known.leases.insert(number);
            }
        }
        let lease = Lease {
            number,
            owner,
            group,
            devices,
            priority: request.priority,
            not_before: begin,
            expires: (begin + self.rules.life_of(life_seconds)).min(renewable_until),
            renewable_until,
            client_key,
            may_share: request.may_share,
        };
        let policy = self.rules.policy.to_string();
        let kept = Kept {
            lease,
            by: ticket.by,
            purpose,
            nodes,
            life_seconds,
            prolonged: false,
            lent,
            asked: ticket.since,
            waited_for: ticket.because,
            policy,
            over: None,
        };
        self.owners.gets(&kept.lease.owner, now);
        self.changes.push(Change::Lease(Box::new(kept.clone())));
        self.enter(kept);
        self.queue.settle(ticket_number, whose, Outcome::Granted(number), now);
    }

    pub(super) fn because(&self, number: u64) -> String {
        let said = self.queue.waiting.get(&number).and_then(|ticket| ticket.because.clone());
        said.unwrap_or_else(|| match self.queue.place(number) - 1 {
            1 => "one request before it waits for the same devices or quota".into(),
            before => format!("{before} requests are before it, and some wait for the same"),
        })
    }
}
