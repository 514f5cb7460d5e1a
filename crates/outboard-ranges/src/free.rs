//! Ranges of addresses that are free.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges, from which callers take addresses and to which they give them back.
#[derive(Debug)]
pub struct FreeRanges {
    /// Bytes, by first address.
    free: BTreeMap<u64, u64>,
    /// Bytes and first address.
    by_size: BTreeSet<(u64, u64)>,
    /// Ranges that meet at a multiple of this stay two.
    apart: Option<u64>,
}

impl Default for FreeRanges {
    fn default() -> FreeRanges {
        FreeRanges::new()
    }
}

impl FreeRanges {
    /// None. Ranges that meet become one.
    pub const fn new() -> FreeRanges {
        FreeRanges { free: BTreeMap::new(), by_size: BTreeSet::new(), apart: None }
    }

    /// None. Ranges that meet become one, but at multiples of `apart`.
    pub const fn kept_apart(apart: u64) -> FreeRanges {
        FreeRanges { free: BTreeMap::new(), by_size: BTreeSet::new(), apart: Some(apart) }
    }

    fn joins(&self, at: u64) -> bool {
        self.apart.is_none_or(|apart| !at.is_multiple_of(apart))
    }

    fn insert(&mut self, address: u64, bytes: u64) {
        if bytes > 0 {
            self.free.insert(address, bytes);
            self.by_size.insert((bytes, address));
        }
    }

    fn remove(&mut self, address: u64, bytes: u64) {
        self.free.remove(&address);
        self.by_size.remove(&(bytes, address));
    }

    /// Frees a range, of which nothing is free.
    pub fn give(&mut self, mut address: u64, mut bytes: u64) {
        if self.joins(address)
            && let Some((&before, &len)) = self.free.range(..address).next_back()
            && before + len == address
        {
            self.remove(before, len);
            (address, bytes) = (before, len + bytes);
        }
        let end = address + bytes;
        if self.joins(end)
            && let Some(&len) = self.free.get(&end)
        {
            self.remove(end, len);
            bytes += len;
        }
        self.insert(address, bytes);
    }

    /// Takes `bytes` at a multiple of `align`, a power of two, from the smallest range that has
    /// them.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let mut fitting = self.by_size.range((bytes, 0)..);
        let address = fitting.find_map(|(len, start)| place_in(*start, *len, bytes, align))?;
        self.take_at(address, bytes).then_some(address)
    }

    /// Takes the lowest `bytes` at a multiple of `align`, a power of two.
    pub fn take_lowest(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let address =
            self.free.iter().find_map(|(start, len)| place_in(*start, *len, bytes, align))?;
        self.take_at(address, bytes).then_some(address)
    }

    /// Takes a range, if all of it is free.
    pub fn take_at(&mut self, address: u64, bytes: u64) -> bool {
        let Some((&start, &len)) = self.free.range(..=address).next_back() else { return false };
        let before = address - start;
        if before > len || bytes > len - before {
            return false;
        }
        self.remove(start, len);
        self.insert(start, before);
        self.insert(address + bytes, len - before - bytes);
        true
    }

    /// Forgets the free ranges that begin within a range.
    pub fn forget(&mut self, address: u64, bytes: u64) {
        let within: Vec<(u64, u64)> =
            self.free.range(address..address + bytes).map(|(at, len)| (*at, *len)).collect();
        for (at, len) in within {
            self.remove(at, len);
        }
    }

    /// First address and bytes of each free range, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.free.iter().map(|(address, bytes)| (*address, *bytes))
    }
}

/// The first multiple of `align` in the range of `len` bytes at `start`, if `bytes` are left behind
/// it.
fn place_in(start: u64, len: u64, bytes: u64, align: u64) -> Option<u64> {
    let address = start.checked_next_multiple_of(align)?;
    let before = address - start;
    (before <= len && bytes <= len - before).then_some(address)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(ranges: &FreeRanges) -> Vec<(u64, u64)> {
        ranges.iter().collect()
    }

    #[test]
    fn ranges_join_but_where_they_are_kept_apart() {
        let mut ranges = FreeRanges::kept_apart(0x1000);
        for at in [0x1000, 0x1400, 0x1c00, 0x1800, 0x2000] {
            ranges.give(at, 0x400);
        }
        assert_eq!(all(&ranges), [(0x1000, 0x1000), (0x2000, 0x400)]);
        assert_eq!((ranges.take(0x1001, 1), ranges.take(0x400, 1)), (None, Some(0x2000)));
        assert!(
            ranges.take_at(0x1200, 0x200)
                && !ranges.take_at(0x1300, 0x10)
                && !ranges.take_at(0x1f00, 0x101)
        );
        assert_eq!(ranges.take(0x201, 0x800), Some(0x1800));
        ranges.forget(0x1000, 0x1000);
        assert_eq!(ranges.take(1, 1), None);
    }

    #[test]
    fn the_smallest_that_fits_is_not_the_lowest() {
        let mut ranges = FreeRanges::new();
        for (address, bytes) in [(0x100, 0x80), (0x200, 0x20), (0x308, 0x18)] {
            ranges.give(address, bytes);
        }
        assert_eq!(ranges.take(0x10, 0x10), Some(0x310));
        assert_eq!(ranges.take_lowest(0x10, 0x10), Some(0x100));
        // The range at 0x308 has the bytes, but not at a multiple.
        assert_eq!(ranges.take(0x8, 0x10), Some(0x200));
        assert_eq!(ranges.take_lowest(0x40, 0x40), Some(0x140));
        assert_eq!((ranges.take(u64::MAX, 1), ranges.take(1, 1 << 63)), (None, None));
    }

    /// Most steps; Miri takes seconds for some of them.
    const STEPS: usize = if cfg!(miri) { 20 } else { 200 };

    proptest! {
        /// What is taken is free no longer, and what is given back is all there again.
        #[test]
        fn nothing_is_given_out_twice(steps in proptest::collection::vec((1u64..40, 0u32..5, 0u8..4, 0usize..64), 1..STEPS)) {
            const ALL: u64 = 1000;
            let mut ranges = FreeRanges::new();
            ranges.give(0, ALL);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (bytes, align, action, pick) in steps {
                let align = 1 << align;
                if action >= 2 && !taken.is_empty() {
                    let (at, len) = taken.swap_remove(pick % taken.len());
                    ranges.give(at, len);
                    continue;
                }
                let fits = |(start, len): &(u64, u64)| start.next_multiple_of(align) + bytes <= start + len;
                let fitting: Vec<_> = ranges.iter().filter(fits).collect();
                let expected = if action == 0 {
                    fitting.iter().copied().min_by_key(|(start, len)| (*len, *start))
                } else {
                    fitting.first().copied()
                };
                let found = if action == 0 { ranges.take(bytes, align) } else { ranges.take_lowest(bytes, align) };
                prop_assert_eq!(found, expected.map(|(start, _)| start.next_multiple_of(align)));
                if let Some(at) = found {
                    prop_assert!(taken.iter().all(|(other, len)| at + bytes <= *other || other + len <= at));
                    taken.push((at, bytes));
                }
                prop_assert_eq!(ranges.by_size.len(), ranges.free.len());
            }
            for (at, len) in taken {
                ranges.give(at, len);
            }
            prop_assert_eq!(all(&ranges), [(0, ALL)]);
        }
    }
}
