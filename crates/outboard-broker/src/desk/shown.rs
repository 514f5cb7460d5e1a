//! What people see of the desk.

use super::rules::MOST_TOLD;
use super::{Desk, Kept, Kind, No};
use jiff::Timestamp;
use outboard_pool::api::{
    DeviceView, HistoryView, LeaseView, OwnerView, Point, PoolView, ServerView, TicketView, Told,
    UsageTold, UsageView, Why,
};
use outboard_pool::words::{Condition, Granted, Health, LeaseNumber, OwnerName, Server, Size, Use};
use std::collections::BTreeSet;

/// The parts of lists that are told at once.
struct Page {
    /// How much a list may still say: about as many devices.
    most: usize,
    is_last: bool,
}

impl Page {
    /// As much of a list as fits, at least one of it; and what it ends with.
    fn of<T, K>(
        &mut self,
        list: impl Iterator<Item = T>,
        (key, size): (impl Fn(&T) -> K, impl Fn(&T) -> usize),
    ) -> (Vec<T>, Option<K>) {
        let (mut part, mut sum) = (Vec::new(), 0_usize);
        for one in list {
            sum = sum.saturating_add(size(&one));
            if sum > self.most && !part.is_empty() {
                self.is_last = false;
                break;
            }
            part.push(one);
        }
        let last = part.last().map(key);
        (part, last)
    }
}

fn size_of_server(server: &ServerView) -> usize {
    1 + server.devices.iter().map(|device| 1 + device.leases.len() / 16).sum::<usize>()
}

impl Desk {
    /// All of it.
    #[must_use]
    pub fn view(&self, release: &str) -> PoolView {
        self.page_of(release, &Told::default(), usize::MAX)
    }

    /// What of it comes after that, as much as is told at once.
    #[must_use]
    pub fn page(&self, release: &str, told: &Told) -> PoolView {
        self.page_of(release, told, MOST_TOLD)
    }

    fn page_of(&self, release: &str, told: &Told, most: usize) -> PoolView {
        let mut page = Page { most, is_last: true };
        let servers =
            self.pool.servers().filter(|server| Some(&server.name) > told.server.as_ref());
        let servers = servers.filter_map(|server| self.server_view(server));
        let key = |server: &ServerView| server.name.clone();
        let (servers, server) = page.of(servers, (key, size_of_server));
        let leases = self.held().filter(|kept| Some(kept.lease.number) > told.lease);
        let leases = leases.map(|kept| self.lease_view(kept));
        let size = |lease: &LeaseView| 1 + lease.devices.len();
        let (leases, lease) = page.of(leases, (|lease: &LeaseView| lease.number, size));
        let queue = self.queue_view(told.ticket);
        let (queue, ticket) = page.of(queue, (|of: &TicketView| of.ticket, |_: &TicketView| 1));
        let owners = self.owners_view(told.owner.as_ref());
        let key = |owner: &OwnerView| owner.owner.clone();
        let (owners, owner) = page.of(owners.into_iter(), (key, |_: &OwnerView| 1));
        let told = told.clone();
        let next = (!page.is_last).then(|| Told {
            server: server.or(told.server),
            lease: lease.or(told.lease),
            ticket: ticket.or(told.ticket),
            owner: owner.or(told.owner),
        });
        let policy = self.rules.policy.to_string();
        PoolView { release: release.into(), policy, servers, leases, queue, owners, next }
    }

    /// What owners have had, after what was told of that, as much as is told at once: nothing once
    /// all was told.
    #[must_use]
    pub fn usage(&self, told: Option<&UsageTold>) -> Vec<UsageView> {
        self.usage.page(told)
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

    fn queue_view(&self, after: Option<u64>) -> impl Iterator<Item = TicketView> {
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
        let first = after.map_or(0, |after| after.saturating_add(1));
        (self.queue.place(first)..).zip(self.queue.waiting.range(first..)).map(shown)
    }

    fn owners_view(&self, after: Option<&OwnerName>) -> Vec<OwnerView> {
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
        all.into_iter().filter(|owner| Some(*owner) > after).map(shown).collect()
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
