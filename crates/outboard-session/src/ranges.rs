//! Ranges of a block of memory that are free.

use std::ops::Range;

/// The smallest part that is handed out, in bytes; everything is a multiple of it.
const GRAIN: usize = 4 << 10;

/// What is free of a block, sorted, no two ranges touching.
#[derive(Debug)]
pub struct Ranges(Vec<Range<usize>>);

impl Ranges {
    /// All of a block of `bytes`.
    pub fn new(bytes: usize) -> Ranges {
        Ranges(std::iter::once(0..bytes / GRAIN * GRAIN).collect())
    }

    /// Takes `bytes` out of the smallest range that has them: where they begin.
    pub fn take(&mut self, bytes: usize) -> Option<usize> {
        let bytes = rounded(bytes)?;
        let fitting = (0..self.0.len()).filter(|index| self.0[*index].len() >= bytes);
        let index = fitting.min_by_key(|index| self.0[*index].len())?;
        let start = self.0[index].start;
        self.0[index].start += bytes;
        if self.0[index].is_empty() {
            self.0.remove(index);
        }
        Some(start)
    }

    /// Gives back what was taken.
    pub fn give_back(&mut self, start: usize, bytes: usize) {
        let Some(bytes) = rounded(bytes) else { return };
        let mut range = start..start + bytes;
        let index = self.0.partition_point(|free| free.end < range.start);
        // What touches it on either side becomes one with it.
        while let Some(free) = self.0.get(index).filter(|free| free.start <= range.end) {
            range = range.start.min(free.start)..range.end.max(free.end);
            self.0.remove(index);
        }
        self.0.insert(index, range);
    }
}

/// What is free of several blocks of one size, which begin to be used one after the other. What is
/// handed out lies within a block.
#[derive(Debug)]
pub struct Blocks {
    /// Those that have been used.
    used: Vec<Ranges>,
    bytes: usize,
    most: usize,
}

impl Blocks {
    /// `most` blocks of `bytes`.
    pub fn new(bytes: usize, most: usize) -> Blocks {
        Blocks { used: Vec::new(), bytes, most }
    }

    /// Takes `bytes`, of the first `most` blocks: where they begin. Blocks that are in use come
    /// first.
    pub fn take(&mut self, bytes: usize, most: usize) -> Option<usize> {
        let most = most.min(self.most);
        let mut used = self.used.iter_mut().take(most).enumerate();
        let found = used.find_map(|(block, free)| Some(block * self.bytes + free.take(bytes)?));
        found.or_else(|| {
            let mut free = (self.used.len() < most).then(|| Ranges::new(self.bytes))?;
            let at = self.used.len() * self.bytes + free.take(bytes)?;
            self.used.push(free);
            Some(at)
        })
    }

    /// Gives back what was taken.
    pub fn give_back(&mut self, start: usize, bytes: usize) {
        self.used[start / self.bytes].give_back(start % self.bytes, bytes);
    }
}

fn rounded(bytes: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(GRAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is taken never overlaps, and once all is back there is one range again.
        #[test]
        fn nothing_is_handed_out_twice(steps in proptest::collection::vec((1usize..300_000, any::<bool>(), any::<usize>()), 1..200)) {
            const BLOCK: usize = 1 << 20;
            let mut ranges = Ranges::new(BLOCK);
            let mut taken: Vec<(usize, usize)> = Vec::new();
            for (bytes, give_back, which) in steps {
                if give_back && !taken.is_empty() {
                    let (start, bytes) = taken.swap_remove(which % taken.len());
                    ranges.give_back(start, bytes);
                } else if let Some(start) = ranges.take(bytes) {
                    prop_assert!(start + bytes <= BLOCK && start.is_multiple_of(GRAIN));
                    prop_assert!(taken.iter().all(|(other, len)| start + bytes <= *other || other + len <= start));
                    taken.push((start, bytes));
                }
            }
            for (start, bytes) in taken {
                ranges.give_back(start, bytes);
            }
            prop_assert!(ranges.0.len() == 1 && ranges.0[0] == (0..BLOCK));
        }
    }

    #[test]
    fn what_is_taken_of_blocks_lies_within_one() {
        let mut blocks = Blocks::new(3 * GRAIN, 2);
        assert_eq!(blocks.take(2 * GRAIN, 9), Some(0));
        assert_eq!(blocks.take(2 * GRAIN, 1), None);
        assert_eq!(blocks.take(2 * GRAIN, 2), Some(3 * GRAIN));
        assert_eq!((blocks.take(1, 9), blocks.take(1, 9)), (Some(2 * GRAIN), Some(5 * GRAIN)));
        assert_eq!(blocks.take(1, 9), None);
        blocks.give_back(3 * GRAIN, 2 * GRAIN);
        assert_eq!(blocks.take(3 * GRAIN, 9), None);
        blocks.give_back(5 * GRAIN, 1);
        assert_eq!(blocks.take(3 * GRAIN, 9), Some(3 * GRAIN));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut ranges = Ranges::new(3 * GRAIN);
        assert_eq!(ranges.take(3 * GRAIN + 1), None);
        assert_eq!(ranges.take(usize::MAX), None);
        assert_eq!(ranges.take(2 * GRAIN), Some(0));
        assert_eq!(ranges.take(2 * GRAIN), None);
        assert_eq!(ranges.take(GRAIN), Some(2 * GRAIN));
    }
}
