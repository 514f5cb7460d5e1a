//! For how long the worker has said nothing, as threads notice that wait for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outboard_transport::PEER_CHECK;

use super::locks::lock;

/// Counts the time that threads have waited, alone or together, since something was last heard.
///
/// A look counts at most [`PEER_CHECK`], after which every waiting thread looks again. If more has
/// passed since the look before, no thread of this process waited or ran: what kept them from it
/// may have kept the worker from speaking.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// Whether anything is counted: nothing has been heard since.
    counts: AtomicBool,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    total: Duration,
    /// The time up to which it is counted.
    until: Duration,
}

impl Silence {
    /// Something has been heard.
    #[inline]
    pub(super) fn end(&self) {
        if self.counts.load(Ordering::Relaxed) {
            self.counts.store(false, Ordering::Relaxed);
        }
    }

    /// At the time `now`, a thread that has waited for so long finds nothing. How long the silence
    /// is by now.
    pub(super) fn look(&self, now: Duration, waited: Duration) -> Duration {
        let mut counted = lock(&self.counted);
        if !self.counts.swap(true, Ordering::Relaxed) {
            *counted = Counted { total: Duration::ZERO, until: now.saturating_sub(waited) };
        }
        let passed = now.saturating_sub(counted.until);
        counted.total += passed.min(PEER_CHECK);
        counted.until = counted.until.max(now);
        counted.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn threads_that_wait_at_once_count_each_moment_once() {
        let silence = Silence::default();
        assert_eq!(silence.look(100 * SECOND, 2 * SECOND), 2 * SECOND);
        assert_eq!(silence.look(101 * SECOND, 2 * SECOND), 3 * SECOND);
        assert_eq!(silence.look(101 * SECOND, Duration::ZERO), 3 * SECOND);
        assert_eq!(silence.look(100 * SECOND, 2 * SECOND), 3 * SECOND, "its clock is read earlier");
        assert_eq!(silence.look(102 * SECOND, 2 * SECOND), 4 * SECOND);
        silence.end();
        assert_eq!(silence.look(103 * SECOND, Duration::ZERO), Duration::ZERO);
        assert_eq!(silence.look(104 * SECOND, 2 * SECOND), SECOND);
    }

    #[test]
    fn time_in_which_nobody_looked_counts_as_one_wait() {
        let silence = Silence::default();
        assert_eq!(silence.look(100 * SECOND, PEER_CHECK), PEER_CHECK);
        assert_eq!(silence.look(3600 * SECOND, PEER_CHECK), 2 * PEER_CHECK);
        assert_eq!(silence.look(3602 * SECOND, PEER_CHECK), 3 * PEER_CHECK);
    }
}
