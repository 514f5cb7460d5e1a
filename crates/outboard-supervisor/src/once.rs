//! Servers that end by themselves once their clients have gone.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::standing::Once;
use crate::supervisor::Supervisor;

/// How often it looks whether clients have gone.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What has been seen of the server's clients.
pub(super) struct Clients {
    times: Option<Once>,
    /// Sessions that had begun at the last look.
    begun: u64,
    /// Since when there has been none.
    without: Instant,
}

impl Clients {
    pub(super) fn none_yet(times: Option<Once>) -> Clients {
        Clients { times, begun: 0, without: Instant::now() }
    }

    /// Waits until there is no client any more; why the server ends. Never ends for servers that
    /// stay.
    pub(super) async fn gone(&mut self, supervisor: &Supervisor) -> &'static str {
        let Some(Once { first, after }) = self.times else { return std::future::pending().await };
        loop {
            let begun = supervisor.tally.starts()["welcomed"];
            if begun > self.begun || supervisor.sessions.len() > 0 {
                (self.begun, self.without) = (begun, Instant::now());
            }
            let (limit, why) = match self.begun {
                0 => (first, "no client has come"),
                _ => (after, "the last client has gone"),
            };
            if self.without.elapsed() >= limit {
                return why;
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
