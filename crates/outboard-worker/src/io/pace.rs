//! How fast bytes may go between client and worker.
//!
//! Each direction has a point in time up to which its bytes are paid for. A thread with bytes to
//! move pays by advancing that point, and waits until the point is not too far ahead: threads of
//! all lanes thus wait in the order in which they came.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Bytes that have waited to be allowed may come at once, as far as they would have fitted into
/// this time.
const BURST: Duration = Duration::from_millis(100);

/// One direction.
#[derive(Debug)]
struct Way(Mutex<Instant>);

/// The bandwidth of a session, for each direction.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes a second.
    rate: f64,
    inward: Way,
    outward: Way,
}

impl Way {
    /// Pays for so much time; how long to wait for it now.
    fn pay(&self, now: Instant, cost: Duration) -> Duration {
        let mut paid = self.0.lock();
        let begin = (*paid).max(now.checked_sub(BURST).unwrap_or(now));
        *paid = begin.checked_add(cost).unwrap_or(begin);
        begin.saturating_duration_since(now)
    }
}

impl Pace {
    /// Allows that many bytes a second each way.
    pub(crate) fn new(rate: u64) -> Arc<Pace> {
        let way = || Way(Mutex::new(Instant::now()));
        Arc::new(Pace { rate: rate.max(1) as f64, inward: way(), outward: way() })
    }

    fn cost(&self, bytes: usize) -> Duration {
        Duration::try_from_secs_f64(bytes as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// Bytes are about to be read; waits for their turn.
    pub(crate) fn read(&self, bytes: usize) {
        std::thread::sleep(self.inward.pay(Instant::now(), self.cost(bytes)));
    }

    /// Bytes are about to be written; waits for their turn.
    pub(crate) fn write(&self, bytes: usize) {
        std::thread::sleep(self.outward.pay(Instant::now(), self.cost(bytes)));
    }

    /// Bytes are written by a thread that cannot wait; others wait for them.
    pub(crate) fn note_written(&self, bytes: usize) {
        let _ = self.outward.pay(Instant::now(), self.cost(bytes));
    }

    /// Bytes have been read by a thread that could not wait.
    pub(crate) fn note_read(&self, bytes: usize) {
        let _ = self.inward.pay(Instant::now(), self.cost(bytes));
    }

    /// Waits until the bytes that were moved without waiting are paid for.
    pub(crate) fn catch_up(&self) {
        let now = Instant::now();
        std::thread::sleep(
            self.inward.pay(now, Duration::ZERO).max(self.outward.pay(now, Duration::ZERO)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_those_before_them() {
        let pace = Pace::new(1000);
        let start = Instant::now();
        let pay = |after: u64, bytes| {
            pace.inward.pay(start + Duration::from_millis(after), pace.cost(bytes)).as_millis()
        };
        // The first goes at once, and the next when its bytes would have gone, but for the burst.
        assert_eq!(pay(10_000, 1000), 0);
        assert_eq!(pay(10_000, 500), 900);
        assert_eq!(pay(10_000, 500), 1400);
        assert_eq!(pay(11_900, 100), 0);
        // Time in which nothing came is not saved up.
        assert_eq!(pay(100_000, 1000), 0);
        assert_eq!(pay(100_000, 1), 900);
        assert_eq!(
            pace.outward.pay(start, Duration::ZERO),
            Duration::ZERO,
            "the other way is free"
        );
        assert_eq!(Pace::new(0).cost(usize::MAX).as_secs(), usize::MAX as u64);
    }
}
