//! Barrier objects in shared memory (`mbarrier`): one opaque 64-bit word each.
//!
//! All threads of a block run on one OS thread, so plain reads and writes do.

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const PENDING_SHIFT: u32 = 1;
const EXPECTED_SHIFT: u32 = PENDING_SHIFT + COUNT_BITS;
const TX_SHIFT: u32 = EXPECTED_SHIFT + COUNT_BITS;
const TX_BITS: u32 = 64 - TX_SHIFT;

/// The state of a barrier object: bit 0 is the parity of the current phase, then pending and
/// expected arrivals, then the transaction count in two's complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mbarrier(pub(crate) u64);

impl Mbarrier {
    pub(crate) fn new(count: u32) -> Mbarrier {
        let count = u64::from(count) & COUNT_MASK;
        Mbarrier(count << PENDING_SHIFT | count << EXPECTED_SHIFT)
    }

    /// Parity of the current, incomplete phase.
    pub(crate) fn parity(self) -> u64 {
        self.0 & 1
    }

    pub(crate) fn pending(self) -> u64 {
        self.0 >> PENDING_SHIFT & COUNT_MASK
    }

    fn expected(self) -> u64 {
        self.0 >> EXPECTED_SHIFT & COUNT_MASK
    }

    fn tx(self) -> i64 {
        (self.0 as i64) >> TX_SHIFT
    }

    fn with(parity: u64, pending: u64, expected: u64, tx: i64) -> Mbarrier {
        let tx = (tx as u64) & ((1 << TX_BITS) - 1);
        Mbarrier(
            parity
                | (pending & COUNT_MASK) << PENDING_SHIFT
                | (expected & COUNT_MASK) << EXPECTED_SHIFT
                | tx << TX_SHIFT,
        )
    }

    /// Adds to the pending arrivals and the transaction count, and goes on to the next phase when
    /// both are zero.
    fn step(self, pending: i64, expected: i64, tx: i64) -> Mbarrier {
        let now_pending = (self.pending() as i64 + pending).max(0) as u64;
        let now_expected = (self.expected() as i64 + expected).max(0) as u64;
        let now_tx = self.tx() + tx;
        if now_pending == 0 && now_tx == 0 {
            Mbarrier::with(self.parity() ^ 1, now_expected, now_expected, 0)
        } else {
            Mbarrier::with(self.parity(), now_pending, now_expected, now_tx)
        }
    }

    /// `count` arrivals; `drop` lowers the expected count of later phases too.
    pub(crate) fn arrive(self, count: u32, drop: bool) -> Mbarrier {
        let count = i64::from(count);
        self.step(-count, if drop { -count } else { 0 }, 0)
    }

    pub(crate) fn expect_tx(self, count: u32) -> Mbarrier {
        // Not a completion even when it brings the count to zero: the arrival decides.
        Mbarrier::with(self.parity(), self.pending(), self.expected(), self.tx() + i64::from(count))
    }

    pub(crate) fn complete_tx(self, count: u32) -> Mbarrier {
        self.step(0, 0, -i64::from(count))
    }

    /// One more arrival to wait for in this phase.
    pub(crate) fn raise(self) -> Mbarrier {
        Mbarrier::with(self.parity(), self.pending() + 1, self.expected(), self.tx())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_arrivals_and_transactions() {
        let mut b = Mbarrier::new(2);
        b = b.arrive(1, false);
        assert_eq!((b.parity(), b.pending()), (0, 1));
        b = b.arrive(1, false);
        assert_eq!((b.parity(), b.pending()), (1, 2));
        b = b.expect_tx(64).arrive(2, false);
        assert_eq!(b.parity(), 1);
        b = b.complete_tx(64);
        assert_eq!((b.parity(), b.pending()), (0, 2));
        b = b.arrive(1, true).arrive(1, false);
        assert_eq!((b.parity(), b.pending()), (1, 1));
    }
}
