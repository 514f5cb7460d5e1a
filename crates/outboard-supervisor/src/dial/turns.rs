//! A session's share of the connections that its server makes to others.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Connections that are being made for a session at once, with those that have just failed.
pub(super) const MOST_OF_A_SESSION: usize = 16;
/// Its requests that are not answered at once: for these connections, and those that wait.
const MOST_REQUESTS: usize = 64;
/// Names that are being resolved for it at once.
const MOST_NAMES: usize = 4;
/// How long a request waits for its turn. A worker waits 10 s for the answer, which a connection
/// may delay for 5 s more.
const PATIENCE: Duration = Duration::from_secs(4);

/// The share of one session.
pub(crate) struct Turns {
    places: Semaphore,
    requests: Semaphore,
    pub(super) names: Arc<Semaphore>,
}

/// A request whose turn it is, until it is dropped.
pub(super) struct Turn<'a> {
    _place: SemaphorePermit<'a>,
    _request: SemaphorePermit<'a>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            places: Semaphore::new(MOST_OF_A_SESSION),
            requests: Semaphore::new(MOST_REQUESTS),
            names: Arc::new(Semaphore::new(MOST_NAMES)),
        }
    }
}

impl Turns {
    /// Waits for the request's turn. `None` if too many wait, or if it does not come in time.
    pub(super) async fn come(&self) -> Option<Turn<'_>> {
        let request = self.requests.try_acquire().ok()?;
        let place = timeout(PATIENCE, self.places.acquire()).await.ok()?.ok()?;
        Some(Turn { _place: place, _request: request })
    }
}
