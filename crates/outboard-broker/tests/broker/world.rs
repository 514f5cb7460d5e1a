//! A pool that is played: servers that are honest but forgetful, clients, clocks that differ, and
//! a desk that is started anew from what it has kept.

use jiff::{SignedDuration, Timestamp};
use outboard_broker::desk::{Asker, Change, Desk, Memory, No, Outcome, Rules, Speaker, Stands};
use outboard_pool::api::{Ask, Beat, LeaseUse};
use outboard_pool::lease::{CLOCK_TOLERANCE, Lease};
use outboard_pool::words::{
    Capability, Condition, Device, Health, LeaseNumber, OwnerName, Request, Server, Use,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const GIB: u64 = 1 << 30;

/// A server as one that keeps its word, with a clock of its own.
pub(crate) struct Played {
    pub(crate) server: Server,
    /// How far its clock is ahead, in seconds.
    pub(crate) ahead: i64,
    /// The ends of the leases that it knows.
    pub(crate) expires: BTreeMap<LeaseNumber, (Lease, Timestamp)>,
    refused: BTreeSet<LeaseNumber>,
    pub(crate) sessions: BTreeSet<LeaseNumber>,
    /// Whether the broker has answered it since it was started.
    is_told: bool,
    ended: Vec<LeaseNumber>,
    start: u64,
}

pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) rules: Rules,
    pub(crate) desk: Desk,
    pub(crate) memory: Memory,
    pub(crate) servers: Vec<Played>,
    /// Leases as clients have them.
    pub(crate) held: Vec<Lease>,
    pub(crate) tickets: Vec<(u64, OwnerName)>,
    pub(crate) numbers: BTreeSet<LeaseNumber>,
}

pub(crate) fn server(number: usize, devices: usize) -> Server {
    let device = |at: usize| Device {
        uuid: format!("GPU-{number}-{at}").parse().unwrap(),
        model: if number.is_multiple_of(2) { "L4".into() } else { "H100".into() },
        memory_bytes: 80 * GIB,
        capability: Capability { major: 9, minor: 0 },
        nvlink: BTreeSet::new(),
        load_percent: 0,
        health: Health::Well,
    };
    Server {
        name: format!("gpu{number}").parse().unwrap(),
        driver: "580".into(),
        labels: BTreeMap::new(),
        condition: Condition::Ready,
        devices: (0..devices).map(device).collect(),
    }
}

pub(crate) fn request(owner: &str, devices: u32, usage: Use, wait_seconds: u32) -> Request {
    let (owner, group) = (owner.parse().unwrap(), "everybody".parse().unwrap());
    Request { memory_bytes: 10 * GIB, usage, wait_seconds, ..Request::new(owner, group, devices) }
}

pub(crate) fn ask(request: Request) -> Ask {
    Ask::new(request, "ab".repeat(32).parse().unwrap())
}

/// Who speaks for servers, all with the same key.
pub(crate) fn speaker(owner: &str) -> Speaker {
    Speaker { owner: owner.parse().unwrap(), key: Some(format!("key of {owner}")) }
}

/// Who asks without a token.
pub(crate) fn asker(name: &str) -> Asker {
    Asker { name: name.parse().unwrap(), token: None }
}

/// Keeps changes as a store does.
pub(crate) fn keep(memory: &mut Memory, changes: Vec<Change>) {
    for change in changes {
        match change {
            Change::Lease(kept) => {
                memory.next = memory.next.max(kept.lease.number.0 + 1);
                memory.leases.retain(|other| other.lease.number != kept.lease.number);
                memory.leases.push(*kept);
            }
            Change::Freed(number) => memory.leases.retain(|kept| kept.lease.number != number),
            Change::Server(registered) => {
                memory.servers.retain(|other| other.server.name != registered.server.name);
                memory.servers.push(*registered);
            }
            Change::Forgotten(name) => memory.servers.retain(|other| other.server.name != name),
            Change::Used(account, used) => {
                memory.used.retain(|(other, _)| *other != account);
                memory.used.push((account, used));
            }
            Change::NoDay(day) => memory.used.retain(|(account, _)| account.day != day),
            Change::Passed(at, point) => memory.passed.push((at, point)),
            Change::NoPassed(before) => memory.passed.retain(|(at, _)| *at >= before),
            Change::Keys(keys) => memory.keys = Some(keys),
        }
    }
}

impl World {
    pub(crate) fn new(rules: Rules, servers: Vec<(Server, i64)>) -> World {
        let now: Timestamp = "2026-11-25T08:00:00Z".parse().unwrap();
        let desk = Desk::new(rules.clone(), Memory::default(), now);
        let played = |(server, ahead)| Played {
            server,
            ahead,
            expires: BTreeMap::new(),
            refused: BTreeSet::new(),
            sessions: BTreeSet::new(),
            is_told: false,
            ended: Vec::new(),
            start: 1,
        };
        World {
            now,
            rules,
            desk,
            memory: Memory::default(),
            servers: servers.into_iter().map(played).collect(),
            held: Vec::new(),
            tickets: Vec::new(),
            numbers: BTreeSet::new(),
        }
    }

    pub(crate) fn settle(&mut self) {
        let changes = self.desk.take_changes();
        keep(&mut self.memory, changes);
    }

    /// Time passes, and the desk and the servers do what is due.
    pub(crate) fn pass(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
        let now = self.now;
        for played in &mut self.servers {
            let there = now + SignedDuration::from_secs(played.ahead);
            let is_good = |expires: &Timestamp| there.duration_since(*expires) <= CLOCK_TOLERANCE;
            let Played { sessions, expires, .. } = played;
            sessions.retain(|lease| expires.get(lease).is_some_and(|(_, end)| is_good(end)));
        }
        self.desk.tick(now);
        self.settle();
        self.collect();
    }

    /// Clients take what they have been granted.
    pub(crate) fn collect(&mut self) {
        let mut left = Vec::new();
        for (ticket, owner) in std::mem::take(&mut self.tickets) {
            match self.desk.stands(ticket, self.now) {
                Ok(Stands::Settled(Outcome::Granted(number))) => {
                    assert!(self.numbers.insert(number), "lease {number} was granted twice");
                    self.held.extend(self.desk.lease(number).cloned());
                }
                Ok(Stands::Waiting { place, of, .. }) => {
                    assert!(place >= 1 && place <= of);
                    left.push((ticket, owner));
                }
                Ok(Stands::Settled(Outcome::Refused(_))) | Err(_) => {}
            }
        }
        self.tickets = left;
        self.settle();
    }

    /// A server beats; its answer may get lost. Whether it was heard.
    pub(crate) fn beat(&mut self, at: usize, is_lost: bool) -> Result<(), No> {
        let now = self.now;
        let played = &self.servers[at];
        let used = |lease: &LeaseNumber| LeaseUse {
            lease: *lease,
            expires: played.expires[lease].1,
            sessions: 1,
            memory_bytes: GIB,
        };
        let beat = Beat {
            server: played.server.clone(),
            address: format!("gpu{at}:9470"),
            fingerprint: None,
            release: "0.1.0".into(),
            in_use: played.sessions.iter().map(used).collect(),
            gone: played.ended.clone(),
            start: Some(played.start),
        };
        let heard = self.desk.beat(&speaker("servers"), &beat, now)?;
        self.settle();
        if !is_lost {
            let played = &mut self.servers[at];
            for (lease, _) in &heard.ended {
                played.sessions.remove(lease);
                played.refused.insert(*lease);
            }
            for lease in heard.renewed {
                let expires = lease.expires;
                played.expires.insert(lease.number, (lease, expires));
            }
            played.ended = heard.ended.into_iter().map(|(lease, _)| lease).collect();
            played.is_told = true;
        }
        self.desk.tick(now);
        self.settle();
        self.collect();
        Ok(())
    }

    /// A server that is none of the played ones says what it likes.
    pub(crate) fn lie(&mut self, in_use: &[u64], gone: &[u64], sessions: u32, ready: bool) {
        let used = |number: &u64| LeaseUse {
            lease: LeaseNumber(*number),
            expires: self.now - SignedDuration::from_hours(24 * i64::from(sessions % 7)),
            sessions,
            memory_bytes: u64::MAX,
        };
        let mut server = server(8, 1);
        if !ready {
            server.condition = Condition::Draining;
        }
        let beat = Beat {
            server,
            address: "liar:1".into(),
            fingerprint: None,
            release: "0.1.0".into(),
            in_use: in_use.iter().map(used).collect(),
            gone: gone.iter().copied().map(LeaseNumber).collect(),
            start: Some(sessions.into()),
        };
        let heard = self.desk.beat(&speaker("liars"), &beat, self.now);
        assert!(heard.is_ok());
        self.settle();
        self.desk.tick(self.now);
        self.settle();
        self.collect();
        // People look on.
        let _ = self.desk.view("");
    }

    /// Whether a server would let a lease in, as a client has it.
    fn believes(&self, at: usize, lease: &Lease) -> bool {
        let played = &self.servers[at];
        let there = self.now + SignedDuration::from_secs(played.ahead);
        played.is_told
            && lease.on(&played.server.name).next().is_some()
            && !played.refused.contains(&lease.number)
            && there.duration_since(lease.expires) <= CLOCK_TOLERANCE
    }

    /// A client starts a session with what it holds.
    pub(crate) fn start(&mut self, held: usize, at: usize) {
        let Some(lease) = self.held.get(held % self.held.len().max(1)).cloned() else { return };
        if self.believes(at, &lease) {
            let played = &mut self.servers[at];
            let known = played.expires.get(&lease.number).map(|(_, expires)| *expires);
            let expires = known.map_or(lease.expires, |known| known.max(lease.expires));
            played.expires.insert(lease.number, (lease.clone(), expires));
            played.sessions.insert(lease.number);
        }
    }

    /// A server starts anew, and remembers nothing.
    pub(crate) fn restart_server(&mut self, at: usize) {
        let played = &mut self.servers[at];
        played.expires.clear();
        played.refused.clear();
        played.sessions.clear();
        played.ended.clear();
        played.start += 1;
        played.is_told = false;
    }

    /// The broker is killed and goes on from what is kept.
    pub(crate) fn restart_broker(&mut self) {
        self.tickets.clear();
        self.desk = Desk::new(self.rules.clone(), self.memory.clone(), self.now);
    }

    pub(crate) fn ask(&mut self, request: Request) -> Result<(), No> {
        let owner = request.owner.clone();
        let ticket = self.desk.ask(ask(request), asker(owner.as_str()), self.now)?;
        self.settle();
        self.tickets.push((ticket, owner));
        self.collect();
        Ok(())
    }

    /// No device has more sessions than it has room for, whatever clients start with what they
    /// hold.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (at, played) in self.servers.iter().enumerate() {
            let name = &played.server.name;
            // Sessions that there are, and those that could start now.
            let mut possible: BTreeMap<LeaseNumber, &Lease> = BTreeMap::new();
            for lease in &played.sessions {
                possible.insert(*lease, &played.expires[lease].0);
            }
            let holdable = self.held.iter().filter(|lease| self.believes(at, lease));
            possible.extend(holdable.map(|lease| (lease.number, lease)));
            for device in &played.server.devices {
                let on: Vec<_> = possible
                    .values()
                    .flat_map(|lease| lease.on(name).map(move |one| (lease.number, one)))
                    .filter(|(_, one)| one.device == device.uuid)
                    .collect();
                let percent: u32 =
                    on.iter().map(|(_, one)| u32::from(one.usage.share().percent())).sum();
                let memory: u64 = on.iter().map(|(_, one)| one.memory_bytes).sum();
                if percent > 100 || memory > device.memory_bytes {
                    return Err(format!("{} of {name} is given twice: {on:?}", device.uuid));
                }
            }
        }
        Ok(())
    }
}
