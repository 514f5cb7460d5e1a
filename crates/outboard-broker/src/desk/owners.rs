//! How many leases owners get, and how many of theirs are over that servers may still believe: what
//! one owner asks for and ends again and again must not keep servers from hearing of others.

use super::rules::{LEASES_AT_ONCE, MOST_UNCONFIRMED_OF_AN_OWNER, NEXT_LEASE_AFTER};
use jiff::Timestamp;
use outboard_pool::words::OwnerName;
use std::collections::BTreeMap;

/// All owners with anything to count.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// When an owner may have as many leases at once again as one that has had none.
    rested: BTreeMap<OwnerName, Timestamp>,
    unconfirmed: BTreeMap<OwnerName, u32>,
    /// Whether somebody waits for time to pass.
    is_awaited: bool,
}

impl Owners {
    /// Whether an owner may get a lease now, or why not.
    pub(super) fn may_get(&mut self, owner: &OwnerName, now: Timestamp) -> Result<(), String> {
        let unconfirmed = self.unconfirmed.get(owner).copied().unwrap_or(0);
        if unconfirmed >= MOST_UNCONFIRMED_OF_AN_OWNER {
            return Err(format!(
                "{unconfirmed} leases of {owner} are over, and servers have yet to say that they \
                 refuse them"
            ));
        }
        let rested = self.rested.get(owner).copied().unwrap_or(now);
        let all = NEXT_LEASE_AFTER * i32::try_from(LEASES_AT_ONCE - 1).unwrap_or(i32::MAX);
        if rested.duration_since(now) > all {
            self.is_awaited = true;
            let rate = 1000 / NEXT_LEASE_AFTER.as_millis();
            return Err(format!(
                "{owner} has had {LEASES_AT_ONCE} leases lately and gets {rate} a second"
            ));
        }
        Ok(())
    }

    /// An owner gets a lease.
    pub(super) fn gets(&mut self, owner: &OwnerName, now: Timestamp) {
        let rested = self.rested.entry(owner.clone()).or_insert(now);
        *rested = (*rested).max(now) + NEXT_LEASE_AFTER;
    }

    /// Time has passed. Whether somebody waits who may get something now.
    pub(super) fn have_room_again(&mut self, now: Timestamp) -> bool {
        self.rested.retain(|_, rested| *rested > now);
        std::mem::take(&mut self.is_awaited)
    }

    /// A lease of the owner is over.
    pub(super) fn is_unconfirmed(&mut self, owner: &OwnerName) {
        *self.unconfirmed.entry(owner.clone()).or_default() += 1;
    }

    /// Servers refuse such a lease, or it has expired.
    pub(super) fn is_confirmed(&mut self, owner: &OwnerName) {
        if let Some(count) = self.unconfirmed.get_mut(owner) {
            *count -= 1;
            if *count == 0 {
                self.unconfirmed.remove(owner);
            }
        }
    }
}
