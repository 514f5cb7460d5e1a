//! A map from addresses to the ranges that hold them.

use std::collections::BTreeMap;

use outboard_wire::DevicePtr;

/// Ranges that do not overlap, each with a value.
#[derive(Debug)]
pub(crate) struct Ranges<T>(BTreeMap<DevicePtr, (u64, T)>);

impl<T> Ranges<T> {
    pub(crate) const fn new() -> Ranges<T> {
        Ranges(BTreeMap::new())
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Adds the range of `bytes` at `base`.
    pub(crate) fn insert(&mut self, base: DevicePtr, bytes: u64, value: T) {
        self.0.insert(base, (bytes, value));
    }

    /// Takes out the range that starts at `base`.
    pub(crate) fn remove(&mut self, base: DevicePtr) -> Option<(u64, T)> {
        self.0.remove(&base)
    }

    /// The value of the range that starts at `base`.
    pub(crate) fn get_mut(&mut self, base: DevicePtr) -> Option<&mut T> {
        self.0.get_mut(&base).map(|(_, value)| value)
    }

    /// Base, bytes and value of the range that holds `address`.
    pub(crate) fn find(&self, address: DevicePtr) -> Option<(DevicePtr, u64, &T)> {
        let (base, (bytes, value)) = self.0.range(..=address).next_back()?;
        (address.since(*base) < *bytes).then_some((*base, *bytes, value))
    }

    /// Whether any range shares an address with these `bytes` at `base`.
    pub(crate) fn overlaps(&self, base: DevicePtr, bytes: u64) -> bool {
        let end = base.saturating_add(bytes);
        self.0
            .range(..end)
            .next_back()
            .is_some_and(|(start, (len, _))| start.saturating_add(*len) > base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_list_finds(ranges in prop::collection::vec((0u64..1000, 1u64..20), 0..40), probe in 0u64..1100) {
            let mut map = Ranges::new();
            let mut list: Vec<(u64, u64)> = Vec::new();
            for (base, bytes) in ranges {
                let clash = list.iter().any(|(b, n)| base < b + n && *b < base + bytes);
                prop_assert_eq!(map.overlaps(DevicePtr(base), bytes), clash);
                if !clash {
                    map.insert(DevicePtr(base), bytes, base);
                    list.push((base, bytes));
                }
            }
            let expected = list.iter().find(|(b, n)| (*b..b + n).contains(&probe)).copied();
            prop_assert_eq!(map.find(DevicePtr(probe)).map(|(b, n, _)| (b.0, n)), expected);
        }
    }
}
