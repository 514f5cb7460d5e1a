//! Which broker of a pool is asked next.

use std::time::{Duration, Instant};

/// A broker that is silent is not asked again for so long, unless all are: each attempt costs a
/// second or more, in which another broker may have begun to lead.
const SPARED: Duration = Duration::from_secs(3);

/// The brokers of a pool, which are asked in turn until one leads.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The broker that is asked now.
    at: usize,
    /// Until when each is spared.
    spared_until: Vec<Option<Instant>>,
}

impl Turns {
    pub(crate) fn of(count: usize) -> Turns {
        Turns { at: 0, spared_until: vec![None; count] }
    }

    /// The number of the broker to ask now.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The broker that is asked now is silent, or does not lead: another one is asked from now on.
    ///
    /// Returns whether all others that are not spared were asked since this was last true.
    pub(crate) fn next(&mut self, is_silent: bool, now: Instant) -> bool {
        let count = self.spared_until.len();
        if is_silent {
            self.spared_until[self.at] = Some(now + SPARED);
        }
        let is_spared = |at: usize| self.spared_until[at % count].is_some_and(|until| now < until);
        let others = self.at + 1..=self.at + count;
        let next = others.into_iter().find(|at| !is_spared(*at)).unwrap_or(self.at + 1);
        self.at = next % count;
        next >= count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_broker_is_spared_for_a_while() {
        let start = Instant::now();
        let mut turns = Turns::of(3);
        let mut next = |is_silent, ms| {
            let is_round = turns.next(is_silent, start + Duration::from_millis(ms));
            (turns.at(), is_round)
        };
        assert_eq!(next(true, 1000), (1, false));
        assert_eq!(next(false, 1001), (2, false));
        // The first one is not asked again until its time is over.
        assert_eq!(next(false, 1002), (1, true));
        assert_eq!(next(false, 1003), (2, false));
        assert_eq!(next(false, 3999), (1, true));
        assert_eq!(next(false, 3999), (2, false));
        assert_eq!(next(false, 4000), (0, true));
        // If all are silent, each has its turn.
        assert_eq!(next(true, 5000), (1, false));
        assert_eq!(next(true, 6000), (2, false));
        assert_eq!(next(true, 7000), (0, true));
        assert_eq!(next(true, 7001), (1, false));
    }

    #[test]
    fn a_broker_that_is_alone_is_asked_again() {
        let mut turns = Turns::of(1);
        assert!(turns.next(true, Instant::now()));
        assert_eq!(turns.at(), 0);
    }
}
