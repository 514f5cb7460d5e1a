//! How a server that stops leaves its pool: the broker is to hear of it before the server is gone.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::changes::until;

/// How long a server that stops waits for the broker to hear of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the broker believes of the server.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Believes {
    /// Nothing now: it does not answer, or has not yet.
    #[default]
    Nothing,
    /// That it takes new sessions.
    Serves,
    /// That it takes none.
    Drains,
}

/// Whether the broker knows that the server takes no new sessions.
#[derive(Default)]
pub(crate) struct SignOff {
    believes: Cell<Believes>,
    changed: Notify,
}

impl SignOff {
    /// The broker has heard a beat that says whether the server drains.
    pub(super) fn is_heard(&self, drains: bool) {
        self.set(if drains { Believes::Drains } else { Believes::Serves });
    }

    /// The broker does not answer.
    pub(super) fn is_unheard(&self) {
        self.set(Believes::Nothing);
    }

    fn set(&self, believes: Believes) {
        self.believes.set(believes);
        self.changed.notify_waiters();
    }

    /// Waits until the broker gives nobody devices of this server any more, or does not answer.
    pub(crate) async fn wait(&self) {
        let is_known = || self.believes.get() != Believes::Serves;
        if timeout(PATIENCE, until(&self.changed, is_known)).await.is_err() {
            self.set(Believes::Nothing);
        }
        if self.believes.get() == Believes::Nothing {
            tracing::warn!(
                "the broker may not have heard that this server stops; it gives nobody the devices \
                 once it has heard nothing of the server for 10 s"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_waits_for_the_broker_that_believes_in_it() {
        let sign_off = SignOff::default();
        sign_off.wait().await;
        sign_off.is_heard(false);
        let mut waits = pin!(sign_off.wait());
        assert!(timeout(PATIENCE / 2, &mut waits).await.is_err());
        sign_off.is_heard(true);
        waits.await;
        let begin = Instant::now();
        sign_off.is_heard(false);
        sign_off.wait().await;
        assert_eq!(begin.elapsed(), PATIENCE, "a broker that is silent delays no end for longer");
    }
}
