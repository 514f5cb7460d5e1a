//! The sixteen barriers of a block.

use std::cell::Cell;

/// Barriers per block.
pub(crate) const BARRIERS: usize = 16;
/// Words of a set of threads.
const WORDS: usize = 32;

/// One barrier: who has arrived, and what is reduced over them.
#[derive(Default)]
pub(crate) struct Barrier {
    arrived: Cell<u32>,
    /// Threads needed; 0 for all threads of the block.
    expected: Cell<u32>,
    trues: Cell<u32>,
    contributions: Cell<u32>,
    waiting: [Cell<u32>; WORDS],
}

/// The threads that a completed barrier lets go, as one mask per warp, and the reduction over them.
pub(crate) struct Released {
    pub(crate) waiting: [u32; WORDS],
    /// Threads whose predicate held.
    pub(crate) trues: u32,
    /// Threads that gave a predicate.
    pub(crate) contributions: u32,
}

impl Barrier {
    pub(crate) fn reset(&self) {
        self.arrived.set(0);
        self.expected.set(0);
        self.trues.set(0);
        self.contributions.set(0);
        for word in &self.waiting {
            word.set(0);
        }
    }

    /// A thread arrives: it needs `expected` threads (0: all), waits or not, and may bring a
    /// predicate.
    pub(crate) fn arrive(
        &self,
        warp: usize,
        lane: u32,
        expected: u32,
        waits: bool,
        pred: Option<bool>,
    ) {
        self.arrived.set(self.arrived.get() + 1);
        self.expected.set(expected);
        if waits {
            let word = &self.waiting[warp];
            word.set(word.get() | 1 << lane);
        }
        if let Some(pred) = pred {
            self.contributions.set(self.contributions.get() + 1);
            self.trues.set(self.trues.get() + u32::from(pred));
        }
    }

    /// Lets go of those who wait, if enough have arrived. A barrier of the whole block needs only
    /// its `live` threads, since threads that have exited count as arrived. A count is met by all
    /// live threads as well: hardware counts a partly filled warp as full.
    pub(crate) fn complete(&self, live: u32) -> Option<Released> {
        let (arrived, expected) = (self.arrived.get(), self.expected.get());
        let needed = if expected == 0 { live } else { expected.min(live.max(1)) };
        if arrived == 0 || arrived < needed {
            return None;
        }
        let released = Released {
            waiting: std::array::from_fn(|i| self.waiting[i].get()),
            trues: self.trues.get(),
            contributions: self.contributions.get(),
        };
        self.reset();
        Some(released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_or_a_count() {
        let barrier = Barrier::default();
        barrier.arrive(0, 3, 0, true, Some(true));
        assert!(barrier.complete(2).is_none());
        barrier.arrive(1, 0, 0, true, Some(false));
        let released = barrier.complete(2).expect("both arrived");
        assert_eq!((released.waiting[0], released.waiting[1]), (8, 1));
        assert_eq!((released.trues, released.contributions), (1, 2));

        barrier.arrive(0, 0, 64, true, None);
        (1..63).for_each(|i| barrier.arrive(i / 32, i as u32 % 32, 64, false, None));
        assert!(barrier.complete(128).is_none());
        barrier.arrive(1, 31, 64, false, None);
        assert_eq!(barrier.complete(128).expect("64 arrived").waiting[0], 1);
    }

    #[test]
    fn exited_threads_count_as_arrived() {
        let barrier = Barrier::default();
        barrier.arrive(0, 0, 0, true, None);
        assert!(barrier.complete(2).is_none());
        assert!(barrier.complete(1).is_some());
    }
}
