//! Leases are renewed and come to their end.

use super::kept::{Change, Kept, Over};
use super::rules::is_surely_over;
use super::{Desk, Kind, No};
use jiff::{SignedDuration, Timestamp};
use outboard_pool::words::{LeaseNumber, ServerName};

impl Desk {
    /// Renews a lease for whoever holds it.
    ///
    /// # Errors
    ///
    /// If it is over.
    pub fn renew(&mut self, number: LeaseNumber, now: Timestamp) -> Result<(), No> {
        self.goes_on(number)?;
        self.extend(number, now);
        Ok(())
    }

    /// Has a lease be good for so many seconds from now on, if it is for fewer: for as long as the
    /// broker allows, also beyond what was asked for.
    ///
    /// # Errors
    ///
    /// If it is over.
    pub fn prolong(&mut self, number: LeaseNumber, seconds: u32, now: Timestamp) -> Result<(), No> {
        self.goes_on(number)?;
        let Some(kept) = self.leases.get_mut(&number) else { return Ok(()) };
        let lease = &mut kept.lease;
        let longest = lease.not_before + self.rules.longest;
        let until = whole_second(now + SignedDuration::from_secs(seconds.into())).min(longest);
        let until = kept.lent.as_ref().map_or(until, |lent| until.min(lent.until));
        if until > lease.expires {
            lease.expires = until;
            lease.renewable_until = lease.renewable_until.max(until);
            kept.prolonged = true;
            self.holds.are_stale();
            self.changes.push(Change::Lease(Box::new(kept.clone())));
        }
        Ok(())
    }

    /// Leases whose devices are kept for nobody any more are no loans.
    pub(super) fn take_back_loans(&mut self) {
        for number in std::mem::take(&mut self.lent) {
            let Some(kept) = self.leases.get_mut(&number).filter(|kept| kept.over.is_none()) else {
                continue;
            };
            let Some(lent) = &kept.lent else { continue };
            let is_lent = self.queue.waiting.contains_key(&lent.for_ticket)
                && !self.holds.are_elsewhere(lent.for_ticket, &kept.lease.devices);
            if is_lent {
                self.lent.insert(number);
                continue;
            }
            kept.lease.renewable_until = kept.lease.renewable_until.max(lent.otherwise);
            kept.lent = None;
            self.changes.push(Change::Lease(Box::new(kept.clone())));
        }
    }

    fn goes_on(&self, number: LeaseNumber) -> Result<(), No> {
        if self.lease(number).is_some() {
            return Ok(());
        }
        let over = self.leases.get(&number).and_then(|kept| kept.over.as_ref());
        Err(over.map_or_else(
            || No::new(Kind::NotFound, format!("there is no lease {number} any more")),
            |over| {
                let sentence = format!("lease {number} is over: {}", over.because);
                No::new(Kind::Unavailable, sentence)
            },
        ))
    }

    /// Ends a lease before its time.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn end(&mut self, number: LeaseNumber, because: &str, now: Timestamp) -> Result<(), No> {
        if !self.leases.contains_key(&number) {
            return Err(No::new(Kind::NotFound, format!("there is no lease {number} any more")));
        }
        self.finish(number, because, now);
        Ok(())
    }

    /// Ends the leases of tokens that are no longer good, and has their requests leave the queue.
    pub fn end_those_of(&mut self, is_over: impl Fn(&str) -> bool, now: Timestamp) {
        let over = |token: &Option<String>| token.as_deref().is_some_and(&is_over);
        let leases: Vec<LeaseNumber> = self
            .leases
            .values()
            .filter(|kept| kept.over.is_none() && over(&kept.by.token))
            .map(|kept| kept.lease.number)
            .collect();
        for lease in leases {
            self.finish_as(lease, "the token that asked for it was revoked", true, now);
        }
        self.drop_tickets(|ticket| over(&ticket.by.token));
    }

    /// Moves its end, if half of its life is over.
    pub(super) fn extend(&mut self, number: LeaseNumber, now: Timestamp) {
        let Some(kept) = self.leases.get_mut(&number) else { return };
        let life = self.rules.life_of(kept.life_seconds);
        let lease = &mut kept.lease;
        if lease.expires.duration_since(now) > life / 2 {
            return;
        }
        let later = whole_second(now + life).min(lease.renewable_until);
        if later > lease.expires {
            lease.expires = later;
            self.changes.push(Change::Lease(Box::new(kept.clone())));
        }
    }

    pub(super) fn leases_of(
        &self,
        server: &ServerName,
    ) -> impl Iterator<Item = (LeaseNumber, &Kept)> {
        let numbers = self.servers.0.get(server).into_iter().flat_map(|known| &known.leases);
        numbers.filter_map(|number| Some((*number, self.leases.get(number)?)))
    }

    /// A lease is over; its devices on a server are free once that has said that it refuses it.
    pub(super) fn finish(&mut self, number: LeaseNumber, because: &str, now: Timestamp) {
        self.finish_as(number, because, false, now);
    }

    fn finish_as(&mut self, number: LeaseNumber, because: &str, is_revoked: bool, now: Timestamp) {
        let Some(kept) = self.leases.get_mut(&number).filter(|kept| kept.over.is_none()) else {
            return;
        };
        if let Some(aim) = kept.aim() {
            self.aims.remove(&aim);
        }
        let servers = kept.lease.devices.iter().map(|granted| granted.server.clone());
        let outstanding = servers.collect();
        let because = because.to_owned();
        kept.over = Some(Over { at: now, because, outstanding, is_freed: false, is_revoked });
        self.owners.is_unconfirmed(&kept.lease.owner);
        self.changes.push(Change::Lease(Box::new(kept.clone())));
    }

    /// A server has lost devices of the lease, so that placement counts it as given back.
    pub(super) fn lost(&mut self, number: LeaseNumber, because: &str, now: Timestamp) {
        self.finish(number, because, now);
        self.free(number);
        // The lease's other servers get no new ones before they know.
        let over = self.leases.get(&number).and_then(|kept| kept.over.as_ref());
        let others = over.map(|over| over.outstanding.clone()).unwrap_or_default();
        others.iter().for_each(|name| self.settle_condition(name, now));
    }

    /// Its devices can be given to others. A server that is started anew remembers nothing, and is
    /// told again that it is over until it has expired.
    fn free(&mut self, number: LeaseNumber) {
        let Some(kept) = self.leases.get_mut(&number) else { return };
        let Some(over) = &mut kept.over else { return };
        if !std::mem::replace(&mut over.is_freed, true) {
            self.owners.is_confirmed(&kept.lease.owner);
        }
        self.changes.push(Change::Lease(Box::new(kept.clone())));
        self.pool.release(number);
        self.is_worth_a_look = true;
    }

    /// A server refuses a lease that is over.
    pub(super) fn is_gone(&mut self, number: LeaseNumber, server: &ServerName) {
        let Some(kept) = self.leases.get_mut(&number) else { return };
        let Some(over) = &mut kept.over else { return };
        if !over.outstanding.remove(server) {
            return;
        }
        if over.outstanding.is_empty() {
            self.free(number);
        } else {
            self.changes.push(Change::Lease(Box::new(kept.clone())));
            self.pool.release_on(number, server);
            self.is_worth_a_look = true;
        }
    }

    /// Ends what has expired, and forgets what no server can believe any more.
    pub(super) fn end_in_time(&mut self, now: Timestamp) {
        let mut expired = Vec::new();
        let mut forgotten = Vec::new();
        for (number, kept) in &self.leases {
            let expires = kept.lease.expires;
            match &kept.over {
                None if now >= expires.max(self.grace) => expired.push(*number),
                Some(_) if is_surely_over(expires, now) && now >= self.grace => {
                    forgotten.push(*number);
                }
                _ => {}
            }
        }
        for number in expired {
            let until = self.leases.get(&number).map(|kept| kept.lease.renewable_until);
            let because = match until {
                Some(until) if now >= until => "it was for so long, and not for longer",
                _ => "it has expired: no session used it, and nobody renewed it",
            };
            self.finish(number, because, now);
        }
        forgotten.into_iter().for_each(|number| self.forget(number));
    }
}

/// Times in leases are easier to read so.
pub(super) fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
