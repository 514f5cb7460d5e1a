//! What people see of the desk.

use super::{Desk, Kept, Kind, No};
use jiff::Timestamp;
use outboard_pool::api::{
    DeviceView, HistoryView, LeaseView, OwnerView, Point, PoolView, ServerView, TicketView,
    UsageView, Why,
};
use outboard_pool::words::{Condition, Granted, Health, LeaseNumber, OwnerName, Server, Size, Use};
use std::collections::BTreeSet;

impl Desk {
    /// All of it.
    #[must_use]
    pub fn view(&self, release: &str) -> PoolView {
        PoolView {
            release: release.into(),
            policy: self.rules.policy.to_string(),
            servers: self.pool.servers().filter_map(|server| self.server_view(server)).collect(),
            leases: self.held().map(|kept| self.lease_view(kept)).collect(),
            queue: self.queue_view(),
            owners: self.owners_view(),
        }
    }

    /// What owners have had.
    #[must_use]
    pub fn usage(&self) -> Vec<UsageView> {
        self.usage.view()
    }

    /// How the pool has been used for so many seconds, in at most so many pieces.
    #[must_use]
    pub fn history(&self, now: Timestamp, seconds: u32, points: u32) -> HistoryView {
        self.history.view(now, seconds, points)
    }

    /// How it is used now.
    pub(super) fn present(&self) -> Point {
        let waiting = u32::try_from(self.waiting()).unwrap_or(u32::MAX);
        let mut point = Point { waiting, ..Point::default() };
        let mut load = 0;
        for server in self.pool.servers() {
            let Some(known) = self.servers.0.get(&server.name) else { continue };
            for (device, (_, free)) in server.devices.iter().zip(self.pool.free(&server.name)) {
                // What a silent server's devices do is not known; leases have them all the same.
                if server.condition == Condition::Silent || device.health == Health::Ill {
                    continue;
                }
                point.devices += 1.0;
                point.leased += f32::from(100 - free.min(100)) / 100.0;
                load += u32::from(known.loads.get(&device.uuid).copied().unwrap_or(0));
            }
        }
        if point.devices > 0.0 {
            point.load_percent = load as f32 / point.devices;
        }
        point
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.waiting.len()
    }

    /// What is known of a lease.
    ///
    /// # Errors
    ///
    /// If nothing is.
    pub fn why(&self, number: LeaseNumber, now: Timestamp) -> Result<Why, No> {
        let past = || self.past.iter().rfind(|kept| kept.lease.number == number);
        let kept = self.leases.get(&number).or_else(past).ok_or_else(|| {
            let sentence = format!("nothing is known of lease {number}, or nothing any more");
            No::new(Kind::NotFound, sentence)
        })?;
        let mut sentences = told(kept);
        let Some(over) = &kept.over else {
            sentences.push(self.told_of_use(kept, now));
            return Ok(Why { number, sentences });
        };
        sentences.push(format!("It is over since {}: {}.", over.at, over.because));
        let outstanding = list(over.outstanding.iter().map(ToString::to_string));
        sentences.push(match outstanding.as_str() {
            _ if over.is_freed || !self.leases.contains_key(&number) => {
                "Its devices are free.".into()
            }
            servers => format!(
                "Its devices on these servers are free once they have said that they refuse it, or \
                 no server can believe it any more: {servers}."
            ),
        });
        Ok(Why { number, sentences })
    }

    fn held(&self) -> impl Iterator<Item = &Kept> {
        self.leases.values().filter(|kept| kept.has_devices())
    }

    fn told_of_use(&self, kept: &Kept, now: Timestamp) -> String {
        let (sessions, bytes) = self.use_of(kept.lease.number);
        let in_use = match sessions {
            0 => "No session uses it now".into(),
            1 => format!("One session uses it, with {} of memory", Size(bytes)),
            more => format!("{more} sessions use it, with {} of memory", Size(bytes)),
        };
        let left = kept.lease.expires.duration_since(now).as_secs();
        format!(
            "{in_use}; it ends in {left} s unless it is renewed, which is possible until {}.",
            kept.lease.renewable_until
        )
    }

    fn use_of(&self, number: LeaseNumber) -> (u32, u64) {
        let uses = self.servers.0.values().filter_map(|known| known.uses.get(&number));
        uses.fold((0, 0), |(sessions, bytes), used| {
            (u32::saturating_add(sessions, used.sessions), bytes.saturating_add(used.memory_bytes))
        })
    }

    fn server_view(&self, server: &Server) -> Option<ServerView> {
        let known = self.servers.0.get(&server.name)?;
        let owed: Vec<LeaseNumber> = known
            .leases
            .iter()
            .filter(|lease| self.owes(&server.name, **lease))
            .chain(&known.strays)
            .copied()
            .collect();
        let because = (!owed.is_empty()).then(|| {
            let leases = list(owed.iter().map(ToString::to_string));
            format!("it gets no new leases until it has ended what is over: {leases}")
        });
        let because = known.heard.and_then(|heard| known.why_unheard(heard)).or(because);
        let devices = server.devices.iter().zip(self.pool.free(&server.name));
        let devices = devices.map(|(device, (free_bytes, free_percent))| DeviceView {
            uuid: device.uuid.clone(),
            model: device.model.clone(),
            capability: device.capability,
            memory_bytes: device.memory_bytes,
            free_bytes,
            free_percent,
            load_percent: known.loads.get(&device.uuid).copied().unwrap_or(0),
            health: device.health,
            leases: self
                .leases_of(&server.name)
                .filter(|(_, kept)| {
                    let is_it =
                        |one: &Granted| (&one.server, &one.device) == (&server.name, &device.uuid);
                    kept.held().any(is_it)
                })
                .map(|(number, _)| number)
                .collect(),
        });
        Some(ServerView {
            name: server.name.clone(),
            address: known.registered.address.clone(),
            release: known.registered.release.clone(),
            driver: server.driver.clone(),
            labels: server.labels.clone(),
            condition: server.condition,
            because,
            heard: known.heard,
            devices: devices.collect(),
        })
    }

    fn lease_view(&self, kept: &Kept) -> LeaseView {
        let lease = &kept.lease;
        let (sessions, used_bytes) = self.use_of(lease.number);
        LeaseView {
            number: lease.number,
            owner: lease.owner.clone(),
            group: lease.group.clone(),
            asked_by: kept.by.name.clone(),
            purpose: kept.purpose.clone(),
            since: lease.not_before,
            expires: lease.expires,
            renewable_until: lease.renewable_until,
            sessions,
            used_bytes,
            over: kept.over.as_ref().map(|over| over.because.clone()),
            devices: lease.devices.clone(),
        }
    }

    fn queue_view(&self) -> Vec<TicketView> {
        let shown = |(place, (number, ticket)): (u32, (&u64, &super::queue::Ticket))| {
            let request = &ticket.ask.request;
            TicketView {
                ticket: *number,
                place,
                owner: request.owner.clone(),
                asked_by: ticket.by.name.clone(),
                purpose: ticket.ask.purpose.clone(),
                since: ticket.since,
                devices: request.devices,
                memory_bytes: request.memory_bytes,
                usage: request.usage,
                because: ticket.because.clone().unwrap_or_else(|| {
                    "requests before it wait for the same devices or quota".into()
                }),
            }
        };
        (1..).zip(&self.queue.waiting).map(shown).collect()
    }

    fn owners_view(&self) -> Vec<OwnerView> {
        let having = self.held().map(|kept| &kept.lease.owner);
        let waiting = self.queue.waiting.values().map(|ticket| &ticket.ask.request.owner);
        let named = self.rules.groups.keys().chain(self.rules.quotas.owners.keys());
        let all: BTreeSet<&OwnerName> = having.chain(waiting).chain(named).collect();
        let shown = |owner: &OwnerName| {
            let has = self.pool.usage_of_owner(owner);
            OwnerView {
                owner: owner.clone(),
                group: self.rules.group(owner),
                devices: has.devices,
                memory_bytes: has.memory_bytes,
                waiting: self.queue.of_owner(owner),
                quota: self.rules.quotas.of_owner(owner),
            }
        };
        all.into_iter().map(shown).collect()
    }
}

/// How somebody came to a lease.
fn told(kept: &Kept) -> Vec<String> {
    let lease = &kept.lease;
    let waited = lease.not_before.duration_since(kept.asked).as_secs().max(0);
    let asker = match kept.by.name == lease.owner {
        true => format!("{} (group {})", lease.owner, lease.group),
        false => format!("{}, for {} (group {}),", kept.by.name, lease.owner, lease.group),
    };
    let purpose = kept.purpose.as_ref().map_or(String::new(), |purpose| format!(" as {purpose}"));
    let mut sentences = vec![format!(
        "{asker} asked for it{purpose} at {} and got it after {waited} s.",
        kept.asked
    )];
    if let Some(waited_for) = &kept.waited_for {
        sentences.push(format!("It waited: {waited_for}."));
    }
    if let Some(lent) = &kept.lent {
        sentences.push(format!(
            "Its devices are kept for another request that waits, and lent until {} at the latest.",
            lent.until
        ));
    }
    let devices = list(lease.devices.iter().map(granted));
    sentences.push(format!("Placement ({}) chose {devices}.", kept.policy));
    sentences
}

fn granted(one: &Granted) -> String {
    let part = match one.usage {
        Use::Exclusive => "exclusively".into(),
        Use::Shared(share) => format!("{} % of it", share.percent()),
    };
    format!("{} of {}, {part}, with {}", one.device, one.server, Size(one.memory_bytes))
}

fn list(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(", ")
}
