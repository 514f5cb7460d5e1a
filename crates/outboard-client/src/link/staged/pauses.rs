//! How long threads sleep that wait for what the device writes to shared memory, which wakes no
//! thread.

use std::time::Duration;

/// A wait is looked at again after this part of the time that it has lasted.
const PART_OF_TIME: u32 = 128;
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_millis(20);

/// How long a thread sleeps that has waited for so long.
///
/// A program may have many such threads. Linux divides processors among sessions, and workers lead
/// their own. It was seen to give a session whose threads woke some thousand times a second all
/// processors for more than ten seconds (6.18): the worker that these threads waited for did not
/// run.
pub(crate) fn pause_after(waited: Duration) -> Duration {
    (waited / PART_OF_TIME).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a thread looks during a wait of that length.
    fn looks(wait: Duration) -> u32 {
        let (mut waited, mut looks) = (Duration::ZERO, 0);
        while waited < wait {
            waited += pause_after(waited);
            looks += 1;
        }
        looks
    }

    #[test]
    fn long_waits_are_looked_at_rarely_and_end_soon() {
        for milliseconds in [1, 10, 100, 1_000, 10_000] {
            let wait = Duration::from_millis(milliseconds);
            assert!(pause_after(wait) <= (wait / 100).max(SHORTEST), "{wait:?}");
        }
        assert!(looks(Duration::from_millis(1)) <= 50);
        let (one, ten) = (looks(Duration::from_secs(1)), looks(Duration::from_secs(10)));
        assert!(one <= 1_000, "{one} looks in a second");
        assert!(ten - one <= 9 * 100, "{ten} looks in ten seconds");
    }
}
