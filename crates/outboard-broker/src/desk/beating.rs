//! Servers speak.

use super::kept::{Change, Kept, Registered, Speaker};
use super::registry::{Known, Voice};
use super::{Desk, No};
use jiff::Timestamp;
use outboard_pool::api::{Beat, LEASES_OF_A_SERVER};
use outboard_pool::lease::Lease;
use outboard_pool::words::{Condition, LeaseNumber, OwnerName, ServerName};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What a server is to hear.
#[derive(Debug, Default)]
pub struct Heard {
    /// Leases that are over, and when they expire: as many as it can hear at once.
    pub ended: Vec<(LeaseNumber, Timestamp)>,
    /// Whether there are more.
    pub more: bool,
    /// Leases whose end the server does not know, or may not know.
    pub renewed: Vec<Lease>,
}

/// What does not change from beat to beat.
fn registered(beat: &Beat, by: &Speaker) -> Registered {
    let mut server = beat.server.clone();
    server.condition = Condition::Ready;
    server.devices.iter_mut().for_each(|device| device.load_percent = 0);
    Registered {
        server,
        address: beat.address.clone(),
        fingerprint: beat.fingerprint.clone(),
        release: beat.release.clone(),
        by: by.owner.clone(),
        key: by.key.clone(),
    }
}

impl Desk {
    /// A server speaks.
    ///
    /// # Errors
    ///
    /// If it makes no sense, or the name is another's.
    pub fn beat(&mut self, by: &Speaker, beat: &Beat, now: Timestamp) -> Result<Heard, No> {
        beat.check()?;
        let name = &beat.server.name;
        self.servers.admits(name, by, &self.rules)?;
        let registered = registered(beat, by);
        let known = self.servers.0.get(name);
        let is_news = known.is_none_or(|known| known.registered != registered);
        // Of two, neither changes what the other one says.
        if is_news && !known.is_some_and(|known| known.is_doubled(now)) {
            self.servers.admits_kinds_of(&registered)?;
            self.register_anew(registered, now);
        }
        let mut heard = Heard::default();
        let mut strays = Vec::new();
        let in_use = beat.in_use.iter().filter(|used| used.sessions > 0);
        for used in in_use.clone() {
            match self.leases.get(&used.lease) {
                Some(kept) if kept.lease.on(name).next().is_none() => {
                    strays.push(used.lease);
                    heard.ended.push((used.lease, kept.lease.expires));
                }
                Some(kept) if kept.over.is_none() => self.extend(used.lease, now),
                Some(kept) if kept.holds_on(name) => {}
                // It is told of this one below, as of all of its leases that are over.
                Some(_) => strays.push(used.lease),
                None => {
                    strays.push(used.lease);
                    heard.ended.push((used.lease, used.expires));
                }
            }
        }
        let known = self.servers.0.get_mut(name);
        let Some(known) = known else { return Ok(heard) };
        known.heard = Some(now);
        let voice = Voice {
            start: beat.start,
            address: beat.address.clone(),
            fingerprint: beat.fingerprint.clone(),
        };
        known.speaks(voice, now);
        // What one of two refuses, the other one may use.
        let gone: &[LeaseNumber] = if known.is_doubled(now) { &[] } else { &beat.gone };
        known.drains = beat.server.condition != Condition::Ready;
        known.loads = beat
            .server
            .devices
            .iter()
            .map(|device| (device.uuid.clone(), device.load_percent))
            .collect();
        // What it says of others' leases is nothing.
        let own = in_use.filter(|used| known.leases.contains(&used.lease));
        known.uses = own.map(|used| (used.lease, *used)).collect();
        known.strays = strays;
        let is_over =
            |lease: &LeaseNumber| self.leases.get(lease).is_some_and(|kept| kept.over.is_some());
        known.refuses_also(beat.start, gone.iter().copied().filter(is_over));
        for lease in gone {
            self.is_gone(*lease, name);
        }
        self.end_unused_of_draining(name, now);
        self.tell_what_is_over(name, &mut heard);
        let in_use = beat.in_use.iter().filter(|used| used.sessions > 0);
        let ends: BTreeMap<_, _> = in_use.map(|used| (used.lease, used.expires)).collect();
        for (number, kept) in self.leases_of(name).filter(|(_, kept)| kept.over.is_none()) {
            let is_news = match ends.get(&number) {
                Some(known) => kept.lease.expires > *known,
                // Who begins to use it has what was said first.
                None => kept.prolonged,
            };
            if is_news {
                heard.renewed.push(kept.lease.clone());
            }
        }
        self.settle_condition(name, now);
        Ok(heard)
    }

    /// How many leases, those that are over among them, one of the owner's servers has at most.
    #[must_use]
    pub fn most_leases_of_a_server(&self, by: &OwnerName) -> usize {
        let own = self.servers.0.values().filter(|known| known.registered.by == *by);
        own.map(|known| known.leases.len()).max().unwrap_or(0).min(2 * LEASES_OF_A_SERVER)
    }

    /// Tells a server which of its leases are over. It hears last of what it has heard already, but
    /// cannot be relied on to remember.
    fn tell_what_is_over(&self, name: &ServerName, heard: &mut Heard) {
        let Some(known) = self.servers.0.get(name) else { return };
        let is_news = |(number, _): &(LeaseNumber, &Kept)| !known.refuses(*number);
        let mut over: Vec<_> = self
            .leases_of(name)
            .filter(is_news)
            .filter_map(|(number, kept)| Some((number, kept, kept.over.as_ref()?)))
            .collect();
        over.sort_by_key(|(number, _, over)| {
            let is_outstanding = over.outstanding.contains(name);
            Reverse((is_outstanding, over.is_revoked, known.uses(*number), over.at, *number))
        });
        heard.ended.extend(over.iter().map(|(number, kept, _)| (*number, kept.lease.expires)));
        heard.more = heard.ended.len() > LEASES_OF_A_SERVER;
        heard.ended.truncate(LEASES_OF_A_SERVER);
    }

    fn register_anew(&mut self, registered: Registered, now: Timestamp) {
        let name = registered.server.name.clone();
        let over = self.register(&registered);
        match self.servers.0.get_mut(&name) {
            Some(known) => known.registered = registered.clone(),
            None => {
                let mut known = Known::new(registered.clone());
                // An admin may have forgotten it while it had some.
                let has = |kept: &Kept| kept.lease.on(&name).next().is_some();
                let had = self.leases.iter().filter(|(_, kept)| has(kept));
                known.leases.extend(had.map(|(number, _)| *number));
                self.servers.0.insert(name.clone(), known);
            }
        }
        self.changes.push(Change::Server(Box::new(registered)));
        let because = format!("server {name} does not have all of its devices any more");
        over.into_iter().for_each(|lease| self.lost(lease, &because, now));
    }

    /// A server that drains keeps what is in use.
    fn end_unused_of_draining(&mut self, name: &ServerName, now: Timestamp) {
        let Some(known) = self.servers.0.get(name).filter(|known| known.drains) else { return };
        let has_had_time = |lease: &Lease| now.duration_since(lease.not_before) > self.rules.life;
        let unused: Vec<LeaseNumber> = self
            .leases_of(name)
            .filter(|(number, kept)| !known.uses(*number) && has_had_time(&kept.lease))
            .map(|(number, _)| number)
            .collect();
        for lease in unused {
            self.finish(lease, &format!("server {name} drains, and no session used it there"), now);
        }
    }
}
