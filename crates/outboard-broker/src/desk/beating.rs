//! Servers speak.

use super::kept::{Change, Registered};
use super::registry::Known;
use super::{Desk, No};
use jiff::Timestamp;
use outboard_pool::api::Beat;
use outboard_pool::lease::Lease;
use outboard_pool::words::{Condition, LeaseNumber, OwnerName, ServerName};
use std::collections::BTreeMap;

/// What a server is to hear.
#[derive(Debug, Default)]
pub struct Heard {
    /// Leases that are over.
    pub ended: Vec<LeaseNumber>,
    /// Leases whose end the server does not know, or may not know.
    pub renewed: Vec<Lease>,
}

/// What does not change from beat to beat.
fn registered(beat: &Beat, by: &OwnerName) -> Registered {
    let mut server = beat.server.clone();
    server.condition = Condition::Ready;
    server.devices.iter_mut().for_each(|device| device.load_percent = 0);
    Registered {
        server,
        address: beat.address.clone(),
        fingerprint: beat.fingerprint.clone(),
        release: beat.release.clone(),
        by: by.clone(),
    }
}

impl Desk {
    /// A server speaks, by a token of that owner.
    ///
    /// # Errors
    ///
    /// If it makes no sense, or the name is another's.
    pub fn beat(&mut self, by: &OwnerName, beat: &Beat, now: Timestamp) -> Result<Heard, No> {
        beat.check()?;
        let name = &beat.server.name;
        self.servers.admits(name, by)?;
        let registered = registered(beat, by);
        let known = self.servers.0.get(name);
        if known.is_none_or(|known| known.registered != registered) {
            self.register_anew(registered, now);
        }
        let mut heard = Heard::default();
        let mut strays = Vec::new();
        let in_use = beat.in_use.iter().filter(|used| used.sessions > 0);
        for used in in_use.clone() {
            match self.leases.get(&used.lease) {
                Some(kept) if kept.lease.on(name).next().is_none() => {
                    strays.push(used.lease);
                    heard.ended.push(used.lease);
                }
                Some(kept) if kept.over.is_none() => self.extend(used.lease, now),
                Some(kept) if kept.holds_on(name) => {}
                // It is told of this one below, as of all of its leases that are over.
                Some(_) => strays.push(used.lease),
                None => {
                    strays.push(used.lease);
                    heard.ended.push(used.lease);
                }
            }
        }
        let known = self.servers.0.get_mut(name);
        let Some(known) = known else { return Ok(heard) };
        known.heard = Some(now);
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
        for lease in &beat.gone {
            self.is_gone(*lease, name);
        }
        self.end_unused_of_draining(name, now);
        let over = self.leases_of(name).filter(|(_, kept)| kept.over.is_some());
        heard.ended.extend(over.map(|(number, _)| number));
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

    fn register_anew(&mut self, registered: Registered, now: Timestamp) {
        let name = registered.server.name.clone();
        let over = self.register(&registered);
        match self.servers.0.get_mut(&name) {
            Some(known) => known.registered = registered.clone(),
            None => {
                self.servers.0.insert(name.clone(), Known::new(registered.clone()));
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
