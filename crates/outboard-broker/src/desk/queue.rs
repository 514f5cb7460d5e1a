//! Who waits, first come, first served.

use super::kept::{Aim, Asker};
use super::no::{Kind, No};
use super::rules::{ABANDONED_AFTER, MOST_WAITING, MOST_WAITING_OF_AN_OWNER, TOLD_FOR};
use jiff::Timestamp;
use outboard_pool::api::Ask;
use outboard_pool::words::{
    Capability, LeaseNumber, NodeName, OwnerName, ServerName, Servers, Use,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// What placement looks at in a request: of requests that are the same in it, all wait or none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demand {
    devices: u32,
    memory_bytes: u64,
    usage: Use,
    model: Option<String>,
    capability: Option<Capability>,
    servers: Servers,
    avoid: Vec<ServerName>,
    for_seconds: Option<u32>,
    has_life: bool,
}

/// A request that waits.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) ask: Ask,
    /// The nodes of a job.
    pub(super) nodes: BTreeSet<NodeName>,
    pub(super) by: Asker,
    pub(super) since: Timestamp,
    pub(super) asked_after: Timestamp,
    /// What it waits for; if nothing is said, for those before it.
    pub(super) because: Option<String>,
}

impl Ticket {
    pub(super) fn whose(&self) -> Whose {
        Whose { owner: self.ask.request.owner.clone(), asked_by: self.by.name.clone() }
    }

    fn demand(&self) -> Demand {
        let Ask { request, for_seconds, life_seconds, .. } = &self.ask;
        Demand {
            devices: request.devices,
            memory_bytes: request.memory_bytes,
            usage: request.usage,
            model: request.model.clone(),
            capability: request.capability,
            servers: request.servers,
            avoid: request.avoid.clone(),
            for_seconds: *for_seconds,
            has_life: life_seconds.is_some(),
        }
    }

    fn aim(&self) -> Option<Aim> {
        Some((self.by.name.clone(), self.ask.purpose.clone()?))
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has this lease.
    Granted(LeaseNumber),
    /// It gets nothing.
    Refused(No),
}

#[derive(Debug)]
struct Settled {
    whose: Whose,
    outcome: Outcome,
    at: Timestamp,
}

/// Whose a request or a lease is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whose {
    /// Who is to get it or has it.
    pub owner: OwnerName,
    /// Who asked.
    pub asked_by: OwnerName,
}

/// Requests by their tickets: an earlier ticket is a smaller number.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) waiting: BTreeMap<u64, Ticket>,
    demands: BTreeMap<Demand, BTreeSet<u64>>,
    settled: BTreeMap<u64, Settled>,
    of_owners: BTreeMap<OwnerName, u32>,
    aims: BTreeMap<Aim, u64>,
    next: u64,
    news: Vec<u64>,
}

fn waited(seconds: u32, because: Option<&str>) -> No {
    let because = because.unwrap_or("others were before it");
    No::new(Kind::Unavailable, format!("nothing was free within {seconds} s: {because}"))
}

impl Queue {
    /// Tickets are other ones than those before a restart.
    pub(super) fn new(now: Timestamp) -> Queue {
        Queue {
            waiting: BTreeMap::new(),
            demands: BTreeMap::new(),
            settled: BTreeMap::new(),
            of_owners: BTreeMap::new(),
            aims: BTreeMap::new(),
            next: u64::try_from(now.as_microsecond()).unwrap_or(1).max(1),
            news: Vec::new(),
        }
    }

    /// Puts a request at the end.
    pub(super) fn enter(&mut self, ticket: Ticket) -> Result<u64, No> {
        let owner = ticket.ask.request.owner.clone();
        let of_owner = self.of_owners.get(&owner).copied().unwrap_or(0);
        // However many owners have many, there is room for others.
        let left = MOST_WAITING.saturating_sub(self.waiting.len());
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        if of_owner >= MOST_WAITING_OF_AN_OWNER.min(left) {
            let sentence = match left {
                0 => format!("{MOST_WAITING} requests of the pool wait already; try again later"),
                _ => format!("{of_owner} requests of {owner} wait already; try again later"),
            };
            return Err(No::new(Kind::Busy, sentence));
        }
        self.of_owners.insert(owner, of_owner + 1);
        let number = self.number();
        self.aims.extend(ticket.aim().map(|aim| (aim, number)));
        self.demands.entry(ticket.demand()).or_default().insert(number);
        self.waiting.insert(number, ticket);
        Ok(number)
    }

    /// A ticket of one who need not wait.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Takes a request out.
    pub(super) fn leave(&mut self, number: u64) -> Option<Ticket> {
        let ticket = self.waiting.remove(&number)?;
        if let Some(aim) = ticket.aim() {
            self.aims.remove(&aim);
        }
        let demand = ticket.demand();
        if let Some(same) = self.demands.get_mut(&demand) {
            same.remove(&number);
            if same.is_empty() {
                self.demands.remove(&demand);
            }
        }
        let owner = &ticket.ask.request.owner;
        if let Some(count) = self.of_owners.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.of_owners.remove(owner);
            }
        }
        Some(ticket)
    }

    /// Says what became of a request that has left.
    pub(super) fn settle(&mut self, number: u64, whose: Whose, outcome: Outcome, at: Timestamp) {
        self.settled.insert(number, Settled { whose, outcome, at });
        self.news.push(number);
    }

    /// Whose ticket it is.
    pub(super) fn whose(&self, number: u64) -> Option<Whose> {
        let waiting = self.waiting.get(&number).map(Ticket::whose);
        waiting.or_else(|| self.settled.get(&number).map(|settled| settled.whose.clone()))
    }

    /// The request that waits for a purpose.
    pub(super) fn with(&self, aim: &Aim) -> Option<u64> {
        self.aims.get(aim).copied()
    }

    pub(super) fn outcome(&self, number: u64) -> Option<&Outcome> {
        self.settled.get(&number).map(|settled| &settled.outcome)
    }

    /// Its place, the first is 1.
    pub(super) fn place(&self, number: u64) -> u32 {
        let before = self.waiting.range(..number).count();
        u32::try_from(before + 1).unwrap_or(u32::MAX)
    }

    /// The first request of each demand, which comes first out of the heap.
    pub(super) fn firsts(&self) -> BinaryHeap<Reverse<(u64, Demand)>> {
        let first = |(demand, same): (&Demand, &BTreeSet<u64>)| {
            same.first().map(|number| Reverse((*number, demand.clone())))
        };
        self.demands.iter().filter_map(first).collect()
    }

    /// The next request after that one with the same demand.
    pub(super) fn next(&self, number: u64, demand: &Demand) -> Option<u64> {
        self.demands.get(demand)?.range(number + 1..).next().copied()
    }

    /// How many requests of the owner wait.
    pub(super) fn of_owner(&self, owner: &OwnerName) -> u32 {
        self.of_owners.get(owner).copied().unwrap_or(0)
    }

    /// Takes out those that have waited for long enough, or whose owners have gone. Whether any
    /// was.
    pub(super) fn leave_in_time(&mut self, now: Timestamp) -> bool {
        let is_late = |ticket: &Ticket| {
            now.duration_since(ticket.since).as_secs() >= i64::from(ticket.ask.request.wait_seconds)
        };
        let is_alone = |ticket: &Ticket| now.duration_since(ticket.asked_after) > ABANDONED_AFTER;
        let gone: Vec<(u64, bool)> = self
            .waiting
            .iter()
            .filter(|(_, ticket)| is_late(ticket) || is_alone(ticket))
            .map(|(number, ticket)| (*number, is_late(ticket)))
            .collect();
        for (number, is_late) in &gone {
            let Some(ticket) = self.leave(*number) else { continue };
            if *is_late {
                let waited_for = ticket.ask.request.wait_seconds;
                let refusal = waited(waited_for, ticket.because.as_deref());
                self.settle(*number, ticket.whose(), Outcome::Refused(refusal), now);
            }
        }
        self.settled.retain(|_, settled| now.duration_since(settled.at) <= TOLD_FOR);
        !gone.is_empty()
    }

    /// Those with news since the last call.
    pub(super) fn take_news(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.news)
    }
}
