//! A job whose time limit is extended, or which was suspended, goes on for longer than its lease:
//! the lease follows. Nodes need not hear of it, as the broker tells the servers.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use outboard_broker_client::{AskError, Blocking, Method};
use outboard_pool::api::{Grant, LeaseView, Prolong};
use outboard_pool::words::LeaseNumber;

use super::controller::{self, Jobs};
use super::granting::START;
use crate::failure::Failure;
use crate::pool::access::failed;

/// What the broker has said to it before.
#[derive(Default)]
pub(super) struct Prolonger {
    /// Leases that it lets live no longer than this.
    last: BTreeMap<LeaseNumber, Timestamp>,
}

impl Prolonger {
    /// Prolongs leases of jobs that have more time left.
    pub(super) fn look(
        &mut self,
        broker: &Blocking,
        leases: &[(u32, &LeaseView)],
        live: &Jobs,
    ) -> Result<(), Failure> {
        self.last.retain(|number, _| leases.iter().any(|(_, lease)| lease.number == *number));
        for (job, lease) in leases {
            let Some(left) = live.get(job) else { continue };
            let now = Timestamp::now();
            if self.is_long_enough(lease, *left, now) {
                continue;
            }
            let Some(grant) = prolong(broker, lease.number, *left)? else { continue };
            let until = grant.expires;
            if !is_until(until, *left, now) {
                self.last.insert(lease.number, until);
                let sentence = format!(
                    "the broker lets lease {} end at {until}, before the job",
                    lease.number
                );
                // Who is not there to be told sees it beside the job.
                let told = controller::notify(&job.to_string(), &sentence);
                let noted = controller::note(&job.to_string(), &sentence);
                told.and(noted).unwrap_or_else(|failure| eprintln!("outboard: {failure}"));
            }
            eprintln!("outboard: job {job} goes on for longer: lease {} to {until}", lease.number);
        }
        Ok(())
    }

    fn is_long_enough(&self, lease: &LeaseView, left: Option<u32>, now: Timestamp) -> bool {
        is_until(lease.expires, left, now)
            || self.last.get(&lease.number).is_some_and(|last| lease.expires >= *last)
    }
}

/// Whether a lease that ends then lasts for that many seconds; without a limit, for ever.
fn is_until(expires: Timestamp, left: Option<u32>, now: Timestamp) -> bool {
    left.is_some_and(|left| expires >= now + SignedDuration::from_secs(left.into()))
}

/// Asks the broker; nothing if the lease has ended meanwhile.
fn prolong(
    broker: &Blocking,
    number: LeaseNumber,
    left: Option<u32>,
) -> Result<Option<Grant>, Failure> {
    let for_seconds = left.map_or(u32::MAX, |left| left.saturating_add(START));
    let path = format!("/v1/leases/{number}/prolong");
    match broker.tell(Method::POST, &path, &Prolong { for_seconds }) {
        Ok(grant) => Ok(Some(grant)),
        Err(AskError::Refused { status: 404 | 409, .. }) => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lease_is_prolonged_once_it_is_shorter_than_its_job() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let lease = |expires: &str| -> LeaseView {
            serde_json::from_value(json!({
                "number": 7, "owner": "ada", "group": "everybody", "asked_by": "slurm",
                "purpose": "slurm.blue.1", "since": "2026-01-01T00:00:00Z", "expires": expires,
                "renewable_until": expires, "sessions": 0, "used_bytes": 0, "over": null,
                "devices": [],
            }))
            .unwrap()
        };
        let minute = lease("2026-01-01T00:01:00Z");
        let mut prolonger = Prolonger::default();
        assert!(prolonger.is_long_enough(&minute, Some(60), now));
        assert!(!prolonger.is_long_enough(&minute, Some(61), now));
        assert!(!prolonger.is_long_enough(&minute, None, now), "it is to last for ever");
        // What the broker has refused is not asked for every few seconds.
        prolonger.last.insert(LeaseNumber(7), minute.expires);
        assert!(prolonger.is_long_enough(&minute, Some(61), now));
        assert!(prolonger.is_long_enough(&minute, None, now));
    }
}
