//! When workers that were taken may be replaced: once the sessions that took them have had time for
//! their own start. Without a clock.

use std::time::{Duration, Instant};

/// How long the next start waits.
struct Limits {
    /// Since the last worker was taken.
    quiet: Duration,
    /// Since the first was taken, however many are taken after it.
    latest: Duration,
}

/// While sessions come one at a time, one worker more is no hurry.
const ONE_AT_A_TIME: Limits =
    Limits { quiet: Duration::from_millis(500), latest: Duration::from_secs(3) };
/// The sessions of a burst start within this time; a driver that starts beside them slows each of
/// them down.
const AT_ONCE: Limits =
    Limits { quiet: Duration::from_millis(150), latest: Duration::from_millis(450) };

/// When workers were taken since the last one was started.
#[derive(Default)]
pub(super) struct Pace {
    first_and_last: Option<(Instant, Instant)>,
}

impl Pace {
    /// A session takes a worker.
    pub(super) fn taken(&mut self, now: Instant) {
        let first = self.first_and_last.map_or(now, |(first, _)| first);
        self.first_and_last = Some((first, now));
    }

    /// A worker is started.
    pub(super) fn started(&mut self) {
        self.first_and_last = None;
    }

    /// How long the next start waits from `now` on, while sessions come one at a time or several at
    /// once.
    pub(super) fn pause(&self, one_at_a_time: bool, now: Instant) -> Duration {
        let limits = if one_at_a_time { ONE_AT_A_TIME } else { AT_ONCE };
        let until = self
            .first_and_last
            .map(|(first, last)| (last + limits.quiet).min(first + limits.latest));
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_waits_until_a_burst_is_over_but_not_for_ever() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let mut pace = Pace::default();
        assert_eq!(pace.pause(false, start), Duration::ZERO, "nothing was taken");
        for ms in (0..=40).step_by(10) {
            pace.taken(after(ms));
        }
        assert_eq!(pace.pause(false, after(40)), AT_ONCE.quiet);
        assert_eq!(pace.pause(true, after(40)), ONE_AT_A_TIME.quiet);
        assert_eq!(pace.pause(false, after(40) + AT_ONCE.quiet), Duration::ZERO);
        for ms in (50..=440).step_by(10) {
            pace.taken(after(ms));
        }
        assert_eq!(
            pace.pause(false, after(440)),
            Duration::from_millis(10),
            "sessions that never cease to come hold it up so long"
        );
        pace.started();
        assert_eq!(pace.pause(false, after(440)), Duration::ZERO);
    }
}
