//! Workers that have ended by themselves: the next one waits, ever longer.

use std::time::{Duration, Instant};

/// The longest pause; the first is a second. After as long without any, all is forgotten.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Workers that have ended by themselves.
#[derive(Default)]
pub(super) struct Failures {
    count: u32,
    last: Option<Instant>,
}

impl Failures {
    pub(super) fn add(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.duration_since(last) > LONGEST_PAUSE * 2) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
    }

    /// How long to wait after the last one.
    pub(super) fn pause(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => Duration::from_secs(1 << (count - 1).min(6)).min(LONGEST_PAUSE),
        }
    }

    /// When the next may start.
    pub(super) fn until(&self) -> Option<Instant> {
        self.last.map(|last| last + self.pause())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut failures = Failures::default();
        let now = Instant::now();
        assert_eq!(failures.pause(), Duration::ZERO);
        let pauses: Vec<u64> = std::iter::repeat_with(|| {
            failures.add(now);
            failures.pause().as_secs()
        })
        .take(9)
        .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        failures.add(now + LONGEST_PAUSE * 3);
        assert_eq!(failures.pause().as_secs(), 1);
    }
}
