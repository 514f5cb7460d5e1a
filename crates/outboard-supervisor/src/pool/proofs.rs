//! Proofs that were shown: each is good once.
//!
//! A proof says when it was made, and is refused once that is longer ago than clocks may be apart.
//! Until then its nonce is remembered. Only holders of a lease and its key get so far, and each
//! lease has room for so many.

use std::collections::{BTreeSet, HashMap, HashSet};

use jiff::Timestamp;
use outboard_pool::lease::CLOCK_TOLERANCE;
use outboard_pool::words::LeaseNumber;

/// Proofs of one lease within a minute.
const MOST_OF_A_LEASE: usize = 4096;
/// Proofs of all leases within a minute.
const MOST: usize = 1 << 16;

/// Why a proof is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Stale {
    #[error("it was shown before; a proof is good once")]
    Again,
    #[error(
        "it was made at {made}, and it is {now} here: clocks may be {} seconds apart; set them",
        CLOCK_TOLERANCE.as_secs()
    )]
    Clocks { made: Timestamp, now: Timestamp },
    #[error("it was made at {made}, before this server started at {started}; try again")]
    BeforeTheServer { made: Timestamp, started: Timestamp },
    #[error("too many programs begin at once; try again in a minute")]
    TooMany,
}

/// The proofs that may still be shown again.
pub(super) struct Proofs {
    started: Timestamp,
    seen: HashSet<(LeaseNumber, u128)>,
    /// Until when each is to be remembered.
    until: BTreeSet<(Timestamp, LeaseNumber, u128)>,
    of_leases: HashMap<LeaseNumber, usize>,
}

impl Proofs {
    /// None yet, for a server that starts now.
    pub(super) fn new(started: Timestamp) -> Proofs {
        // Proofs say their time in milliseconds.
        let started = Timestamp::from_millisecond(started.as_millisecond()).unwrap_or(started);
        Proofs { started, seen: HashSet::new(), until: BTreeSet::new(), of_leases: HashMap::new() }
    }

    /// Notes a proof that is shown now. What an earlier server was shown is not known: in the
    /// clear, where others can read it, a proof from that time is refused.
    pub(super) fn take(
        &mut self,
        number: LeaseNumber,
        nonce: u128,
        made: Timestamp,
        now: Timestamp,
        encrypted: bool,
    ) -> Result<(), Stale> {
        if now.duration_since(made).abs() > CLOCK_TOLERANCE {
            return Err(Stale::Clocks { made, now });
        }
        if !encrypted && made < self.started {
            return Err(Stale::BeforeTheServer { made, started: self.started });
        }
        self.forget(now);
        if self.seen.contains(&(number, nonce)) {
            return Err(Stale::Again);
        }
        let own = self.of_leases.entry(number).or_default();
        if *own >= MOST_OF_A_LEASE || self.seen.len() >= MOST {
            return Err(Stale::TooMany);
        }
        *own += 1;
        self.seen.insert((number, nonce));
        // One that is made in the future is good for longer.
        let until = made.checked_add(CLOCK_TOLERANCE).unwrap_or(Timestamp::MAX);
        self.until.insert((until, number, nonce));
        Ok(())
    }

    /// Forgets those that are refused for their time by now.
    fn forget(&mut self, now: Timestamp) {
        while let Some((until, number, nonce)) = self.until.first().copied() {
            if until >= now {
                break;
            }
            self.until.pop_first();
            self.seen.remove(&(number, nonce));
            if let Some(own) = self.of_leases.get_mut(&number) {
                *own -= 1;
                if *own == 0 {
                    self.of_leases.remove(&number);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    const ONE: LeaseNumber = LeaseNumber(1);
    const OTHER: LeaseNumber = LeaseNumber(2);

    #[test]
    fn a_proof_is_good_once_and_for_as_long_as_clocks_may_be_apart() {
        let mut proofs = Proofs::new(at(0));
        assert_eq!(proofs.take(ONE, 7, at(10), at(10), false), Ok(()));
        assert_eq!(proofs.take(ONE, 7, at(10), at(10), false), Err(Stale::Again));
        assert_eq!(proofs.take(ONE, 7, at(10), at(40), false), Err(Stale::Again));
        assert!(matches!(proofs.take(ONE, 7, at(10), at(41), false), Err(Stale::Clocks { .. })));
        assert_eq!(proofs.take(OTHER, 7, at(10), at(10), false), Ok(()), "another lease's");
        assert_eq!(proofs.take(ONE, 8, at(70), at(40), false), Ok(()), "a clock that is ahead");
        assert!(matches!(proofs.take(ONE, 9, at(71), at(40), false), Err(Stale::Clocks { .. })));
        assert_eq!(proofs.take(ONE, 8, at(70), at(100), false), Err(Stale::Again));
        assert!(matches!(
            proofs.take(ONE, 1, Timestamp::MAX, at(1), false),
            Err(Stale::Clocks { .. })
        ));
        assert!(matches!(
            proofs.take(ONE, 1, Timestamp::MIN, at(1), true),
            Err(Stale::Clocks { .. })
        ));
    }

    #[test]
    fn what_an_earlier_server_may_have_been_shown_is_refused_in_the_clear() {
        let mut proofs = Proofs::new(at(0));
        let refused = Err(Stale::BeforeTheServer { made: at(-1), started: at(0) });
        assert_eq!(proofs.take(ONE, 7, at(-1), at(1), false), refused);
        assert_eq!(proofs.take(ONE, 7, at(-1), at(1), true), Ok(()));
        assert_eq!(proofs.take(ONE, 7, at(-1), at(1), true), Err(Stale::Again));
    }

    #[test]
    fn memory_is_bounded_for_each_lease_and_for_all_and_comes_back() {
        let mut proofs = Proofs::new(at(0));
        for nonce in 0..MOST_OF_A_LEASE as u128 {
            assert_eq!(proofs.take(ONE, nonce, at(1), at(1), false), Ok(()));
        }
        assert_eq!(proofs.take(ONE, u128::MAX, at(1), at(1), false), Err(Stale::TooMany));
        assert_eq!(proofs.take(OTHER, 0, at(1), at(1), false), Ok(()), "others have room");
        for lease in 3.. {
            let own = (0..MOST_OF_A_LEASE as u128)
                .all(|nonce| proofs.take(LeaseNumber(lease), nonce, at(1), at(1), false).is_ok());
            if !own {
                break;
            }
        }
        assert_eq!(proofs.seen.len(), MOST);
        assert_eq!(proofs.take(ONE, u128::MAX, at(40), at(40), false), Ok(()));
        assert_eq!((proofs.seen.len(), proofs.until.len(), proofs.of_leases.len()), (1, 1, 1));
    }
}
