//! Proofs that were shown: each is good once.
//!
//! A proof says when it was made, and is refused once that is longer ago than clocks may be apart.
//! Until then its nonce is remembered. Only holders of a lease and its key get so far, and each
//! lease and each owner has room for so many.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use jiff::Timestamp;
use outboard_pool::lease::CLOCK_TOLERANCE;
use outboard_pool::words::{LeaseNumber, OwnerName};

/// Proofs of one lease within the time that each is remembered.
const MOST_OF_A_LEASE: usize = 4096;
/// Proofs of all leases of one owner.
const MOST_OF_AN_OWNER: usize = 8192;
/// Proofs of all.
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
    #[error(
        "it was made at {made}, and one that said a later time is forgotten already: set the clocks of the programs that share the lease, or try again in a minute"
    )]
    Overtaken { made: Timestamp },
    #[error("too many programs begin at once; try again in a minute")]
    TooMany,
    #[error("too many programs of {0} begin at once; try again in a minute")]
    TooManyOfOwner(OwnerName),
}

/// A proof that may still be shown again, in the order in which they are forgotten.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Remembered {
    until: Timestamp,
    lease: LeaseNumber,
    nonce: u128,
    made: Timestamp,
    owner: OwnerName,
}

/// The proofs that may still be shown again.
pub(super) struct Proofs {
    started: Timestamp,
    seen: HashSet<(LeaseNumber, u128)>,
    remembered: BTreeSet<Remembered>,
    of_leases: HashMap<LeaseNumber, usize>,
    of_owners: HashMap<OwnerName, usize>,
    /// Of a lease, the latest time said by a proof that is forgotten although that time would do:
    /// the clock of who made it is ahead.
    forgotten: HashMap<LeaseNumber, Timestamp>,
}

fn count_of<K: Eq + Hash>(counts: &HashMap<K, usize>, key: &K) -> usize {
    counts.get(key).copied().unwrap_or(0)
}

fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// A proof as it is shown.
pub(super) struct Shown<'a> {
    pub(super) lease: LeaseNumber,
    pub(super) owner: &'a OwnerName,
    pub(super) nonce: u128,
    pub(super) made: Timestamp,
    /// Whether the connection is encrypted.
    pub(super) encrypted: bool,
}

impl Proofs {
    /// None yet, for a server that starts now.
    pub(super) fn new(started: Timestamp) -> Proofs {
        // Proofs say their time in milliseconds.
        let started = Timestamp::from_millisecond(started.as_millisecond()).unwrap_or(started);
        Proofs {
            started,
            seen: HashSet::new(),
            remembered: BTreeSet::new(),
            of_leases: HashMap::new(),
            of_owners: HashMap::new(),
            forgotten: HashMap::new(),
        }
    }

    /// Notes a proof that is shown now. What an earlier server was shown is not known: in the
    /// clear, where others can read it, a proof from that time is refused.
    pub(super) fn take(&mut self, shown: &Shown<'_>, now: Timestamp) -> Result<(), Stale> {
        let Shown { lease, owner, nonce, made, encrypted } = *shown;
        if now.duration_since(made).abs() > CLOCK_TOLERANCE {
            return Err(Stale::Clocks { made, now });
        }
        if !encrypted && made < self.started {
            return Err(Stale::BeforeTheServer { made, started: self.started });
        }
        self.forget(now);
        if self.seen.contains(&(lease, nonce)) {
            return Err(Stale::Again);
        }
        if self.forgotten.get(&lease).is_some_and(|latest| made <= *latest) {
            return Err(Stale::Overtaken { made });
        }
        let left = MOST - self.seen.len();
        if count_of(&self.of_leases, &lease) >= MOST_OF_A_LEASE || left == 0 {
            return Err(Stale::TooMany);
        }
        // Many owners together leave room for others, too.
        if count_of(&self.of_owners, owner) >= MOST_OF_AN_OWNER.min(left) {
            return Err(Stale::TooManyOfOwner(owner.clone()));
        }
        *self.of_leases.entry(lease).or_default() += 1;
        *self.of_owners.entry(owner.clone()).or_default() += 1;
        self.seen.insert((lease, nonce));
        // A clock that is ahead is no reason to remember for longer.
        let until = made.min(now).checked_add(CLOCK_TOLERANCE).unwrap_or(Timestamp::MAX);
        self.remembered.insert(Remembered { until, lease, nonce, made, owner: owner.clone() });
        Ok(())
    }

    /// Forgets those that have been remembered for their time.
    fn forget(&mut self, now: Timestamp) {
        let is_good = |made: Timestamp| now.duration_since(made) <= CLOCK_TOLERANCE;
        self.forgotten.retain(|_, made| is_good(*made));
        while self.remembered.first().is_some_and(|first| first.until < now) {
            let Some(first) = self.remembered.pop_first() else { return };
            let Remembered { lease, nonce, made, owner, .. } = first;
            self.seen.remove(&(lease, nonce));
            one_less(&mut self.of_leases, &lease);
            one_less(&mut self.of_owners, &owner);
            if is_good(made) {
                let latest = self.forgotten.entry(lease).or_insert(made);
                *latest = made.max(*latest);
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

    fn owner(number: u64) -> OwnerName {
        format!("owner{number}").parse().unwrap()
    }

    impl Proofs {
        /// A proof of `owner0`, in the clear.
        fn shown(
            &mut self,
            lease: LeaseNumber,
            nonce: u128,
            made: Timestamp,
            now: Timestamp,
        ) -> Result<(), Stale> {
            let owner = &owner(0);
            self.take(&Shown { lease, owner, nonce, made, encrypted: false }, now)
        }

        /// One owner shows as many as it may, of as many leases as it likes.
        fn fill(&mut self, number: u64, now: Timestamp) -> usize {
            let owner = &owner(number);
            let mut count = 0;
            for lease in (number * 100..).take(20).map(LeaseNumber) {
                for nonce in 0..MOST_OF_A_LEASE as u128 {
                    let shown = Shown { lease, owner, nonce, made: now, encrypted: false };
                    if self.take(&shown, now).is_err() {
                        return count;
                    }
                    count += 1;
                }
            }
            count
        }
    }

    #[test]
    fn a_proof_is_good_once_and_for_as_long_as_clocks_may_be_apart() {
        let mut proofs = Proofs::new(at(0));
        assert_eq!(proofs.shown(ONE, 7, at(10), at(10)), Ok(()));
        assert_eq!(proofs.shown(ONE, 7, at(10), at(10)), Err(Stale::Again));
        assert_eq!(proofs.shown(ONE, 7, at(10), at(40)), Err(Stale::Again));
        assert!(matches!(proofs.shown(ONE, 7, at(10), at(41)), Err(Stale::Clocks { .. })));
        assert_eq!(proofs.shown(OTHER, 7, at(10), at(10)), Ok(()), "another lease's");
        assert!(matches!(proofs.shown(ONE, 9, at(71), at(40)), Err(Stale::Clocks { .. })));
        for time in [Timestamp::MAX, Timestamp::MIN] {
            assert!(matches!(proofs.shown(ONE, 1, time, at(1)), Err(Stale::Clocks { .. })));
        }
    }

    #[test]
    fn a_clock_that_is_ahead_is_no_reason_to_remember_for_longer() {
        let mut proofs = Proofs::new(at(0));
        assert_eq!(proofs.shown(ONE, 8, at(70), at(40)), Ok(()));
        assert_eq!(proofs.shown(ONE, 8, at(70), at(70)), Err(Stale::Again));
        for now in 71..=100 {
            let again = proofs.shown(ONE, 8, at(70), at(now));
            assert_eq!(again, Err(Stale::Overtaken { made: at(70) }), "at {now}");
        }
        assert!(proofs.seen.is_empty() && proofs.remembered.is_empty());
        assert!(matches!(proofs.shown(ONE, 8, at(70), at(101)), Err(Stale::Clocks { .. })));
        // The same clock, a while later, and clocks that are right.
        let mut proofs = Proofs::new(at(0));
        assert_eq!(proofs.shown(ONE, 8, at(70), at(40)), Ok(()));
        assert_eq!(proofs.shown(ONE, 9, at(101), at(71)), Ok(()));
        assert_eq!(proofs.shown(ONE, 10, at(71), at(71)), Ok(()));
        assert_eq!(proofs.shown(OTHER, 8, at(50), at(71)), Ok(()), "another lease's");
        assert_eq!(proofs.shown(OTHER, 9, at(102), at(102)), Ok(()));
        assert!(proofs.shown(ONE, 11, at(132), at(132)).is_ok() && proofs.forgotten.is_empty());
    }

    #[test]
    fn what_an_earlier_server_may_have_been_shown_is_refused_in_the_clear() {
        let mut proofs = Proofs::new(at(0));
        let refused = Err(Stale::BeforeTheServer { made: at(-1), started: at(0) });
        assert_eq!(proofs.shown(ONE, 7, at(-1), at(1)), refused);
        let owner = &owner(0);
        let shown = Shown { lease: ONE, owner, nonce: 7, made: at(-1), encrypted: true };
        assert_eq!(proofs.take(&shown, at(1)), Ok(()));
        assert_eq!(proofs.take(&shown, at(1)), Err(Stale::Again));
    }

    #[test]
    fn memory_is_bounded_for_each_lease_and_owner_and_for_all_and_comes_back() {
        let mut proofs = Proofs::new(at(0));
        for nonce in 0..MOST_OF_A_LEASE as u128 {
            assert_eq!(proofs.shown(ONE, nonce, at(1), at(1)), Ok(()));
        }
        assert_eq!(proofs.shown(ONE, u128::MAX, at(1), at(1)), Err(Stale::TooMany));
        assert_eq!(proofs.shown(OTHER, 0, at(1), at(1)), Ok(()), "another lease has room");
        // All leases of an owner together have a share, ...
        assert_eq!(proofs.fill(1, at(1)), MOST_OF_AN_OWNER);
        // ... and many owners leave room for others.
        for number in 2..12 {
            assert!(proofs.fill(number, at(1)) > 0, "{number}");
        }
        assert!(proofs.seen.len() < MOST, "{}", proofs.seen.len());
        let (owner, now) = (&owner(99), at(1));
        let shown = Shown { lease: LeaseNumber(99), owner, nonce: 1, made: now, encrypted: false };
        assert_eq!(proofs.take(&shown, now), Ok(()));
        assert_eq!(proofs.shown(ONE, u128::MAX, at(40), at(40)), Ok(()));
        let counts = (proofs.seen.len(), proofs.remembered.len());
        assert_eq!(counts, (1, 1));
        assert_eq!((proofs.of_leases.len(), proofs.of_owners.len()), (1, 1));
    }
}
