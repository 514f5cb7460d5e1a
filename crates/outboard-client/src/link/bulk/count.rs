//! Finds out at run time how many lanes suit the link.
//!
//! One connection carries what one processor can move through the network stack, or what a window
//! and the distance let through; more of them carry more until something else is the limit: the
//! network, the device, or the processors, which too many threads only keep from their work. A link
//! therefore begins with a few lanes and doubles them while that makes large copies faster. Lanes
//! stay open after a step that brought nothing, but no others follow.

use std::time::Duration;

/// To begin with.
const FIRST_LANES: usize = 4;
/// Copies of fewer bytes say little: they are over before all lanes carry something.
const LEAST_TELLING: u64 = 8 << 20;
/// Copies that count, of which the best does: what a copy had to wait for (a busy stream, another
/// copy) says nothing about the link.
const TRIALS: usize = 4;
/// Twice as many lanes must be faster by this factor to be worth their threads.
const BETTER: f64 = 1.1;

/// The measurements of one direction.
#[derive(Debug, Default)]
struct Rates {
    /// The best with half as many lanes.
    before: f64,
    best: f64,
    trials: usize,
}

/// How many lanes there are to be.
#[derive(Debug)]
pub(super) struct Count {
    wanted: usize,
    most: usize,
    settled: bool,
    directions: [Rates; 2],
}

impl Count {
    /// At most so many.
    pub(super) fn new(most: usize) -> Count {
        Count {
            wanted: FIRST_LANES.min(most),
            most,
            settled: false,
            directions: Default::default(),
        }
    }

    /// How many lanes are to be open.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// With so many lanes open, a transfer of `len` bytes in a direction took this long. Whether
    /// more lanes are wanted now.
    pub(super) fn took(&mut self, direction: usize, open: usize, len: u64, time: Duration) -> bool {
        if self.settled
            || self.wanted == self.most
            || open < self.wanted
            || len < LEAST_TELLING
            || time.is_zero()
        {
            return false;
        }
        let Some(rates) = self.directions.get_mut(direction) else { return false };
        rates.best = rates.best.max(len as f64 / time.as_secs_f64());
        rates.trials += 1;
        if rates.trials < TRIALS {
            return false;
        }
        if rates.best < rates.before * BETTER {
            // The other direction may still gain.
            rates.trials = 0;
            rates.before = f64::MAX;
            self.settled = self.directions.iter().all(|rates| rates.before == f64::MAX);
            return false;
        }
        self.wanted = (2 * self.wanted).min(self.most);
        for rates in self.directions.iter_mut().filter(|rates| rates.before < f64::MAX) {
            *rates = Rates { before: rates.best, ..Rates::default() };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 64 << 20;

    /// Copies over a link until nothing changes any more; how many lanes it has then. `rate` tells
    /// bytes per second by lanes, for each direction.
    fn settle(most: usize, rate: impl Fn(usize, usize) -> f64) -> usize {
        let mut count = Count::new(most);
        let mut open = count.wanted();
        for turn in 0..200 {
            let direction = turn % 2;
            let slow = if turn % 3 == 0 { 4.0 } else { 1.0 };
            let time = Duration::from_secs_f64(LEN as f64 * slow / rate(direction, open));
            if count.took(direction, open, LEN, time) {
                assert!(count.wanted() > open);
                open = count.wanted();
            }
        }
        open
    }

    #[test]
    fn lanes_are_added_while_that_helps() {
        let limited = |lanes: usize, limit: f64| (lanes as f64 * 1e9).min(limit);
        assert_eq!(settle(16, |_, lanes| limited(lanes, 1e12)), 16, "each lane carries as much");
        assert_eq!(
            settle(16, |_, lanes| limited(lanes, 3e9)),
            8,
            "the network is full: one step shows that"
        );
        assert_eq!(settle(16, |_, lanes| limited(lanes, 8e9)), 16, "and here the next one");
        assert_eq!(
            settle(8, |_, lanes| limited(lanes, 1e12)),
            8,
            "never more than the server offers"
        );
        assert_eq!(settle(2, |_, lanes| limited(lanes, 1e12)), 2);
        let one_way = |direction: usize, lanes: usize| {
            limited(lanes, if direction == 0 { 1e9 } else { 1e12 })
        };
        assert_eq!(settle(16, one_way), 16, "one direction is enough");
    }

    #[test]
    fn small_copies_and_lanes_that_are_being_opened_say_nothing() {
        let mut count = Count::new(16);
        for _ in 0..100 {
            assert!(!count.took(0, 4, LEAST_TELLING - 1, Duration::from_millis(1)));
            assert!(!count.took(0, 3, LEN, Duration::from_millis(1)));
            assert!(!count.took(0, 4, LEN, Duration::ZERO));
            assert!(!count.took(2, 4, LEN, Duration::from_millis(1)));
        }
        assert_eq!(count.wanted(), 4);
    }
}
