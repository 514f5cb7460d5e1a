//! Leases that have ended before their time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use outboard_pool::lease::CLOCK_TOLERANCE;
use outboard_pool::words::LeaseNumber;
use serde::{Deserialize, Serialize};

/// So many are remembered one by one.
const MOST: usize = 1 << 16;

/// Each is remembered until it has expired. If there are too many, the oldest are remembered by
/// one number: none of them becomes good again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Ended {
    expire: BTreeMap<LeaseNumber, Timestamp>,
    /// Leases with smaller numbers are refused if nobody uses them.
    refused_below: u64,
}

impl Ended {
    /// Whether the lease has ended.
    pub(super) fn has(&self, number: LeaseNumber) -> bool {
        self.expire.contains_key(&number)
    }

    /// Whether a lease that nobody uses is refused.
    pub(super) fn may_have_had(&self, number: LeaseNumber) -> bool {
        number.0 < self.refused_below || self.has(number)
    }

    /// That lease has ended, and would expire then. Whether that is news.
    pub(super) fn add(
        &mut self,
        number: LeaseNumber,
        expires: Timestamp,
        is_used: impl Fn(LeaseNumber) -> bool,
    ) -> bool {
        let before = self.expire.insert(number, expires);
        while self.expire.len() > MOST {
            // Sessions of one that is used are about to end, for it is remembered by itself.
            let oldest = self.expire.keys().copied().find(|number| !is_used(*number));
            let Some(oldest) = oldest else { break };
            self.expire.remove(&oldest);
            self.refused_below = self.refused_below.max(oldest.0.saturating_add(1));
        }
        before.is_none()
    }

    /// Forgets those that are refused for their time by now.
    pub(super) fn forget(&mut self, now: Timestamp) {
        self.expire.retain(|_, expires| now.duration_since(*expires) <= CLOCK_TOLERANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::now;
    use super::*;

    use jiff::SignedDuration;

    fn later(seconds: i64) -> Timestamp {
        now() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn what_has_ended_is_remembered_until_it_has_expired() {
        let mut ended = Ended::default();
        assert!(ended.add(LeaseNumber(7), later(60), |_| false));
        assert!(!ended.add(LeaseNumber(7), later(60), |_| false), "it is known");
        ended.forget(later(90));
        assert!(ended.has(LeaseNumber(7)) && ended.may_have_had(LeaseNumber(7)));
        ended.forget(later(91));
        assert_eq!(ended, Ended::default());
    }

    #[test]
    fn none_becomes_good_again_however_many_end() {
        let mut ended = Ended::default();
        let used = LeaseNumber(3);
        for number in 0..MOST as u64 + 10 {
            ended.add(LeaseNumber(number), later(60), |number| number == used);
        }
        assert_eq!(ended.expire.len(), MOST);
        let all = 0..MOST as u64 + 10;
        assert!(all.clone().all(|number| ended.may_have_had(LeaseNumber(number))));
        assert!(ended.has(used), "its sessions are to end");
        assert!(!ended.may_have_had(LeaseNumber(all.end)), "later leases are good");
    }
}
