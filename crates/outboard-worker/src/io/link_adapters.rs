//! RDMA adapters for links to workers of other servers. They are looked for when the first link is
//! made, and left alone for a while if they fail.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use outboard_transport::{Outcome, Stream, write_all};
use outboard_wire::handshake::rdma::Adapters as Offer;
use parking_lot::Mutex;

use super::adapters::{Adapters, Wanted};

/// A link that is lost so soon after it was made may be lost again between adapters.
const SOON: Duration = Duration::from_secs(10);
/// For how long connections of links do not move then, nor after one that could not.
const REST: Duration = Duration::from_secs(60);

/// The adapters to which a session's links may move.
#[derive(Debug, Default)]
pub(super) struct LinkAdapters {
    /// Which they may be; none if the server does not use any.
    wanted: Option<Wanted>,
    found: OnceLock<Option<Adapters>>,
    rests_until: Mutex<Option<Instant>>,
    /// Connections take the ways in turn.
    turn: AtomicUsize,
}

impl LinkAdapters {
    /// Those that the client's connections may move to, too, if these are known.
    pub(super) fn new(wanted: Option<Wanted>, found: Option<Adapters>) -> LinkAdapters {
        let found = found.map_or_else(OnceLock::new, |found| OnceLock::from(Some(found)));
        LinkAdapters { wanted, found, ..LinkAdapters::default() }
    }

    /// Those to which a connection may move now.
    pub(super) fn usable(&self) -> Option<&Adapters> {
        if self.rests_until.lock().is_some_and(|until| Instant::now() < until) {
            return None;
        }
        let find = || self.wanted.as_ref()?.find().ok();
        self.found.get_or_init(find).as_ref()
    }

    /// Moves a connection that this worker has opened to one of those that the other worker offers,
    /// if it can be. If it is encrypted, `encrypt` encrypts the one between adapters.
    pub(super) fn move_there(
        &self,
        adapters: &Adapters,
        offer: &Offer,
        met: Arc<dyn Stream>,
        encrypt: Option<impl FnOnce(Arc<dyn Stream>) -> io::Result<Arc<dyn Stream>>>,
    ) -> io::Result<Arc<dyn Stream>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match (adapters.move_there(offer, turn, &met)?, encrypt) {
            (Outcome::Moved(stream), None) => Ok(stream),
            (Outcome::Moved(stream), Some(encrypt)) => {
                let encrypts = !(adapters.clear() && offer.clear);
                write_all(&*stream, &[u8::from(encrypts)])?;
                if encrypts { encrypt(stream) } else { Ok(stream) }
            }
            (Outcome::Stays(why), _) => {
                if let Some(error) = why {
                    tracing::info!(%error, "a link does not move to RDMA");
                    self.rest();
                }
                Ok(met)
            }
        }
    }

    /// A link has been lost.
    pub(super) fn lost(&self, made: Instant) {
        if made.elapsed() < SOON {
            self.rest();
        }
    }

    /// A connection could not move.
    pub(super) fn rest(&self) {
        *self.rests_until.lock() = Some(Instant::now() + REST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_rdma_moves_no_link() {
        assert!(LinkAdapters::default().usable().is_none());
    }

    #[test]
    fn after_a_link_that_was_lost_at_once_others_stay() {
        let is_resting = |made: Instant| {
            let adapters = LinkAdapters::default();
            adapters.lost(made);
            adapters.rests_until.lock().is_some()
        };
        assert!(is_resting(Instant::now()));
        assert!(!is_resting(Instant::now().checked_sub(2 * SOON).unwrap()));
    }
}
