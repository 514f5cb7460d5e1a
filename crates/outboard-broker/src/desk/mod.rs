//! What the broker decides, without a socket, a file or a clock: who calls says what time it is.
//!
//! A change is made here first. It is to be kept on disk ([`Desk::take_changes`]) before anybody
//! hears of it.

mod asking;
mod beating;
mod history;
mod holds;
mod kept;
mod leasing;
mod no;
mod owners;
mod queue;
mod registry;
mod rules;
mod shown;
mod used;

pub use asking::{Aimed, Stands};
pub use beating::Heard;
pub use kept::{
    Account, Asker, Change, Former, Kept, Keys, Lent, Memory, Over, Registered, Speaker, Used,
};
pub use no::{Kind, No};
pub use queue::{Outcome, Whose};
pub use rules::{BEAT_MS, GRACE, MORE_MS, Rules, SILENT_AFTER};

use history::History;
use holds::Holds;
use jiff::Timestamp;
use kept::Aim;
use outboard_pool::api::Reach;
use outboard_pool::lease::Lease;
use outboard_pool::state::Pool;
use outboard_pool::words::{Condition, LeaseNumber, Server, ServerName};
use owners::Owners;
use queue::Queue;
use registry::{Known, Registry};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use used::Usage;

/// So many leases that are no more can still be explained.
const EXPLAINED: usize = 1024;

/// The broker's desk.
#[derive(Debug)]
pub struct Desk {
    rules: Rules,
    pool: Pool,
    /// The same servers, all ready and nothing taken: what cannot be placed here waits in vain.
    idle: Pool,
    servers: Registry,
    leases: BTreeMap<LeaseNumber, Kept>,
    /// The leases that are not over and have a purpose.
    aims: BTreeMap<Aim, LeaseNumber>,
    past: VecDeque<Kept>,
    queue: Queue,
    usage: Usage,
    owners: Owners,
    history: History,
    next: u64,
    changes: Vec<Change>,
    /// What is kept for those who wait.
    holds: Holds,
    /// The leases with devices that are kept for somebody who waits.
    lent: BTreeSet<LeaseNumber>,
    /// Whether somebody who waits may get something now.
    is_worth_a_look: bool,
    /// When it was last ticked.
    ticked: Timestamp,
    /// Until then leases are not over because nobody has renewed them: the broker was away.
    grace: Timestamp,
}

impl Desk {
    /// A desk that goes on where the one before stopped.
    #[must_use]
    pub fn new(rules: Rules, memory: Memory, now: Timestamp) -> Desk {
        let mut desk = Desk {
            pool: Pool::new(rules.quotas.clone()),
            idle: Pool::new(rules.quotas.clone()),
            rules,
            servers: Registry::default(),
            leases: BTreeMap::new(),
            aims: BTreeMap::new(),
            past: VecDeque::new(),
            queue: Queue::new(now),
            usage: Usage::default(),
            owners: Owners::default(),
            history: History::default(),
            next: memory.next.max(1),
            changes: Vec::new(),
            holds: Holds::default(),
            lent: BTreeSet::new(),
            is_worth_a_look: false,
            ticked: now,
            grace: now + GRACE,
        };
        for registered in memory.servers {
            desk.register(&registered);
            let name = registered.server.name.clone();
            desk.pool.set_condition(&name, Condition::Silent);
            desk.servers.0.insert(name, Known::new(registered));
        }
        for (account, used) in memory.used {
            desk.usage.restore(account, used);
        }
        for (at, point) in memory.passed {
            desk.history.restore(at, point);
        }
        memory.leases.into_iter().for_each(|kept| desk.restore(kept));
        // Those for whom devices were kept ask again.
        desk.take_back_loans();
        desk
    }

    /// Puts what is kept of a lease back where it was.
    fn restore(&mut self, kept: Kept) {
        let lease = &kept.lease;
        self.next = self.next.max(lease.number.0.saturating_add(1));
        if kept.has_devices() {
            let devices = kept.held().cloned().collect();
            if let Err(wrong) = self.pool.grant(lease.number, &lease.owner, &lease.group, devices) {
                tracing::error!(lease = %lease.number, %wrong, "a lease that was kept does not fit");
            }
        }
        for granted in &lease.devices {
            if let Some(known) = self.servers.0.get_mut(&granted.server) {
                known.leases.insert(lease.number);
            }
        }
        if kept.is_unconfirmed() {
            self.owners.is_unconfirmed(&kept.lease.owner);
        }
        self.enter(kept);
    }

    fn enter(&mut self, kept: Kept) {
        let number = kept.lease.number;
        if kept.over.is_none() {
            self.aims.extend(kept.aim().map(|aim| (aim, number)));
        }
        if kept.lent.is_some() {
            self.lent.insert(number);
        }
        self.leases.insert(number, kept);
    }

    /// Does what is due by now. To be called several times a second.
    pub fn tick(&mut self, now: Timestamp) {
        let (pool, kept) = (&self.pool, self.leases.values());
        let held = kept.flat_map(|kept| kept.held().map(|one| (&kept.lease, one)));
        self.usage.count(now, held, |granted| pool.device(granted).map(|device| &*device.model));
        self.look_for_silent_servers(now);
        self.end_in_time(now);
        let have_opened = self.holds.have_opened(self.ticked, now);
        if self.queue.leave_in_time(now) | self.owners.have_room_again(now) | have_opened {
            self.is_worth_a_look = true;
        }
        self.ticked = now;
        self.serve_the_queue(now);
        self.note_history(now);
    }

    fn note_history(&mut self, now: Timestamp) {
        let mut history = std::mem::take(&mut self.history);
        self.changes.extend(history.note(now, || self.present()));
        self.history = history;
    }

    /// Has what owners have had kept, too.
    pub fn keep_usage(&mut self, now: Timestamp) {
        let changes = self.usage.take_changes(now);
        self.changes.extend(changes);
    }

    /// What is to be kept before anybody hears of it.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The tickets of which something is to be told: those that are settled.
    pub fn take_news(&mut self) -> Vec<u64> {
        self.queue.take_news()
    }

    /// Decides by other rules from now on. What is granted stays so.
    pub fn set_rules(&mut self, rules: Rules, now: Timestamp) {
        self.pool.set_quotas(rules.quotas.clone());
        self.idle.set_quotas(rules.quotas.clone());
        self.rules = rules;
        self.holds.are_stale();
        self.refuse_what_waits_in_vain(now);
        self.is_worth_a_look = true;
    }

    /// When the last lease ends unless it is renewed.
    #[must_use]
    pub fn last_end(&self) -> Timestamp {
        let ends = self.leases.values().map(|kept| kept.lease.expires);
        ends.max().unwrap_or(Timestamp::MIN)
    }

    /// The rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// A lease that has not given its devices back, and is not over.
    #[must_use]
    pub fn lease(&self, number: LeaseNumber) -> Option<&Lease> {
        self.leases.get(&number).filter(|kept| kept.over.is_none()).map(|kept| &kept.lease)
    }

    /// The loan that a lease is, if it is one.
    #[must_use]
    pub fn loan(&self, number: LeaseNumber) -> Option<&Lent> {
        self.leases.get(&number)?.lent.as_ref()
    }

    /// Where the devices of a lease are, in the order in which they were granted.
    #[must_use]
    pub fn reach(&self, lease: &Lease) -> Vec<Reach> {
        let mut all: Vec<Reach> = Vec::new();
        for granted in &lease.devices {
            let Some(known) = self.servers.0.get(&granted.server) else { continue };
            if let Some(reach) = all.iter_mut().find(|reach| reach.name == granted.server) {
                reach.devices.push(granted.device.clone());
                continue;
            }
            all.push(Reach {
                name: granted.server.clone(),
                address: known.registered.address.clone(),
                fingerprint: known.registered.fingerprint.clone(),
                devices: vec![granted.device.clone()],
            });
        }
        all
    }

    /// Whose lease it is, also one that is over.
    #[must_use]
    pub fn whose(&self, number: LeaseNumber) -> Option<Whose> {
        let there = self.leases.get(&number);
        let past = || self.past.iter().find(|kept| kept.lease.number == number);
        there.or_else(past).map(Kept::whose)
    }

    fn look_for_silent_servers(&mut self, now: Timestamp) {
        let mut silent = Vec::new();
        for (name, known) in &self.servers.0 {
            if known.is_silent(now) {
                let is_known = |server: &Server| server.condition == Condition::Silent;
                if !self.pool.server(name).is_some_and(is_known) {
                    silent.push(name.clone());
                }
            }
        }
        for name in silent {
            self.pool.set_condition(&name, Condition::Silent);
            self.holds.are_stale();
            self.is_worth_a_look = true;
        }
    }

    /// Forgets a server and to which key its name belongs: who comes next with that name has it.
    /// Leases with devices of it are over.
    ///
    /// # Errors
    ///
    /// If there is no such server.
    pub fn forget_server(&mut self, name: &ServerName, now: Timestamp) -> Result<(), No> {
        if !self.servers.0.contains_key(name) {
            let sentence = format!("the pool has no server {name}");
            return Err(No::new(Kind::NotFound, sentence));
        }
        let because = format!("server {name} is no server of the pool any more");
        let leases: Vec<LeaseNumber> = self.leases_of(name).map(|(number, _)| number).collect();
        leases.into_iter().for_each(|lease| self.lost(lease, &because, now));
        self.pool.remove(name);
        self.idle.remove(name);
        self.servers.0.remove(name);
        self.holds.are_stale();
        self.changes.push(Change::Forgotten(name.clone()));
        self.refuse_what_waits_in_vain(now);
        self.is_worth_a_look = true;
        Ok(())
    }

    /// Has placement know the server as it describes itself. Returns the leases that are over,
    /// since it does not have their devices any more.
    fn register(&mut self, registered: &Registered) -> Vec<LeaseNumber> {
        let server = &registered.server;
        // What was kept has been checked when it came.
        let over = self.pool.register(server.clone()).unwrap_or_else(|wrong| {
            tracing::error!(server = %server.name, %wrong, "a server that was kept is malformed");
            Vec::new()
        });
        let _ = self.idle.register(server.clone());
        self.holds.are_stale();
        self.is_worth_a_look = true;
        over
    }

    /// Tells placement whether the server gets leases now.
    fn settle_condition(&mut self, name: &ServerName, now: Timestamp) {
        let Some(known) = self.servers.0.get(name) else { return };
        let owes = known.leases.iter().any(|lease| self.owes(name, *lease));
        let condition = known.condition(now, owes);
        let is_news = self.pool.server(name).is_some_and(|server| server.condition != condition);
        if is_news && known.is_doubled(now) {
            tracing::error!(server = %name, "two servers with the same key use this name; neither gets leases: give one a state of its own");
        }
        if is_news {
            self.pool.set_condition(name, condition);
            self.holds.are_stale();
            self.is_worth_a_look = true;
        }
    }

    /// Whether the server has yet to say that it refuses a lease whose devices are free already.
    fn owes(&self, name: &ServerName, lease: LeaseNumber) -> bool {
        let over = self.leases.get(&lease).and_then(|kept| kept.over.as_ref());
        over.is_some_and(|over| over.is_freed && over.outstanding.contains(name))
    }

    /// A lease is no more.
    fn forget(&mut self, number: LeaseNumber) {
        let Some(kept) = self.leases.remove(&number) else { return };
        for granted in &kept.lease.devices {
            if let Some(known) = self.servers.0.get_mut(&granted.server) {
                known.forget(number);
            }
        }
        if kept.is_unconfirmed() {
            self.owners.is_confirmed(&kept.lease.owner);
        }
        self.pool.release(number);
        if self.past.len() >= EXPLAINED {
            self.past.pop_front();
        }
        self.past.push_back(kept);
        self.changes.push(Change::Freed(number));
        self.is_worth_a_look = true;
    }
}
