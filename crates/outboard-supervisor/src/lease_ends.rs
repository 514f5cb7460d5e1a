//! Ending the sessions of leases that are over.

use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use outboard_wire::Code;

use crate::pool::{Over, Pool};
use crate::supervisor::Supervisor;

/// How often the leases in use are looked at.
const EVERY: Duration = Duration::from_millis(250);

/// Ends the sessions of leases that have expired or were revoked. Never ends.
pub(crate) async fn end_those_that_are_over(supervisor: Rc<Supervisor>, pool: Rc<Pool>) {
    loop {
        tokio::time::sleep(EVERY).await;
        end_sessions_of_those_over(&supervisor, &pool);
    }
}

/// Ends the sessions of leases that are over by now.
pub(crate) fn end_sessions_of_those_over(supervisor: &Supervisor, pool: &Pool) {
    for (number, over) in pool.over(Timestamp::now()) {
        supervisor.queue.keep_none_for(number);
        let sentence = Code::LeaseOver.end(&match over {
            Over::Expired { expired, .. } => {
                format!("ended, as lease {number} has expired at {expired}")
            }
            _ => format!("ended, as lease {number} was revoked or given back"),
        });
        let of_lease = |about: &crate::about::About| {
            about.lease.as_ref().is_some_and(|held| held.number() == number)
        };
        let ended = supervisor.sessions.end_once(&sentence, |_, about| of_lease(about));
        if !ended.is_empty() {
            tracing::info!(lease = %number, sessions = ended.len(), reason = sentence, "a lease is over");
        }
    }
}
