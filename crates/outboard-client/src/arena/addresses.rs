//! Ranges of addresses that are free.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges. The smallest that is large enough is used first, from its beginning.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Bytes, by first address.
    free: BTreeMap<u64, u64>,
    /// Bytes and first address.
    by_size: BTreeSet<(u64, u64)>,
    /// Ranges that meet at a multiple of this stay two.
    apart: Option<u64>,
}

impl Addresses {
    /// None. Ranges that meet become one.
    pub(super) const fn new() -> Addresses {
        Addresses { free: BTreeMap::new(), by_size: BTreeSet::new(), apart: None }
    }

    /// None. Ranges that meet become one, but at multiples of `apart`.
    pub(super) const fn kept_apart(apart: u64) -> Addresses {
        Addresses { free: BTreeMap::new(), by_size: BTreeSet::new(), apart: Some(apart) }
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
    pub(super) fn give(&mut self, mut address: u64, mut bytes: u64) {
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

    /// Takes `bytes` at a multiple of `align`, a power of two.
    pub(super) fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fitting = self.by_size.range((bytes, 0)..);
        let found = fitting.copied().find_map(|(len, start)| {
            let address = start.checked_next_multiple_of(align)?;
            (address - start <= len - bytes).then_some(address)
        });
        found.filter(|address| self.take_at(*address, bytes))
    }

    /// Takes a range, if all of it is free.
    pub(super) fn take_at(&mut self, address: u64, bytes: u64) -> bool {
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

    /// Forgets what is free of a range.
    pub(super) fn forget(&mut self, address: u64, bytes: u64) {
        let within: Vec<(u64, u64)> =
            self.free.range(address..address + bytes).map(|(at, len)| (*at, *len)).collect();
        for (at, len) in within {
            self.remove(at, len);
        }
    }

    /// Whether a range is free, and what is around it is not or is kept apart.
    #[cfg(test)]
    pub(super) fn is_all(&self, address: u64, bytes: u64) -> bool {
        self.free.get(&address) == Some(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_join_but_where_they_are_kept_apart() {
        let mut addresses = Addresses::kept_apart(0x1000);
        for at in [0x1000, 0x1400, 0x1c00, 0x1800, 0x2000] {
            addresses.give(at, 0x400);
        }
        assert!(addresses.is_all(0x1000, 0x1000) && addresses.is_all(0x2000, 0x400));
        assert_eq!((addresses.take(0x1001, 1), addresses.take(0x400, 1)), (None, Some(0x2000)));
        assert!(
            addresses.take_at(0x1200, 0x200)
                && !addresses.take_at(0x1300, 0x10)
                && !addresses.take_at(0x1f00, 0x101)
        );
        assert_eq!(addresses.take(0x201, 0x800), Some(0x1800));
        addresses.forget(0x1000, 0x1000);
        assert_eq!(addresses.take(1, 1), None);
    }

    proptest! {
        /// What is taken is free no longer, and what is given back is all there again.
        #[test]
        fn nothing_is_given_out_twice(steps in proptest::collection::vec((1u64..40, 0u32..5, any::<bool>(), 0usize..64), 1..200)) {
            const ALL: u64 = 1000;
            let mut addresses = Addresses::new();
            addresses.give(0, ALL);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (bytes, align, gives, pick) in steps {
                if gives && !taken.is_empty() {
                    let (at, len) = taken.swap_remove(pick % taken.len());
                    addresses.give(at, len);
                } else if let Some(at) = addresses.take(bytes, 1 << align) {
                    prop_assert!(at.is_multiple_of(1 << align) && at + bytes <= ALL);
                    prop_assert!(taken.iter().all(|(other, len)| at + bytes <= *other || other + len <= at));
                    taken.push((at, bytes));
                }
            }
            for (at, len) in taken {
                addresses.give(at, len);
            }
            prop_assert!(addresses.is_all(0, ALL));
        }
    }
}
