//! A map from addresses to the ranges that hold them.

use std::collections::BTreeMap;
use std::ops::Range;

/// A number of a byte of memory.
pub trait Address: Copy + Ord {
    /// Bytes from `base` to this address, which is not below it.
    fn since(self, base: Self) -> u64;
    /// The address so many bytes behind this one, or the last one.
    fn saturating_add(self, bytes: u64) -> Self;
}

impl Address for u64 {
    fn since(self, base: u64) -> u64 {
        self - base
    }

    fn saturating_add(self, bytes: u64) -> u64 {
        u64::saturating_add(self, bytes)
    }
}

/// Ranges that do not overlap, each with a value.
#[derive(Debug)]
pub struct RangeMap<A, T>(BTreeMap<A, (u64, T)>);

impl<A, T> Default for RangeMap<A, T> {
    fn default() -> RangeMap<A, T> {
        RangeMap::new()
    }
}

impl<A, T> RangeMap<A, T> {
    /// An empty map.
    pub const fn new() -> RangeMap<A, T> {
        RangeMap(BTreeMap::new())
    }
}

impl<A: Address, T> RangeMap<A, T> {
    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the range of `bytes` at `base`. One that begins there already is replaced.
    pub fn insert(&mut self, base: A, bytes: u64, value: T) {
        self.0.insert(base, (bytes, value));
    }

    /// Takes out the range that begins at `base`: its bytes and value.
    pub fn remove(&mut self, base: A) -> Option<(u64, T)> {
        self.0.remove(&base)
    }

    /// Bytes and value of the range that begins at `base`.
    pub fn get(&self, base: A) -> Option<(u64, &T)> {
        self.0.get(&base).map(|(bytes, value)| (*bytes, value))
    }

    /// The value of the range that begins at `base`.
    pub fn get_mut(&mut self, base: A) -> Option<&mut T> {
        self.0.get_mut(&base).map(|(_, value)| value)
    }

    /// Base, bytes and value of the range that holds `address`.
    pub fn find(&self, address: A) -> Option<(A, u64, &T)> {
        let (base, (bytes, value)) = self.0.range(..=address).next_back()?;
        (address.since(*base) < *bytes).then_some((*base, *bytes, value))
    }

    /// As [`RangeMap::find`], with a value that can be changed.
    pub fn find_mut(&mut self, address: A) -> Option<(A, u64, &mut T)> {
        let (base, (bytes, value)) = self.0.range_mut(..=address).next_back()?;
        (address.since(*base) < *bytes).then_some((*base, *bytes, value))
    }

    /// Whether any range shares an address with these `bytes` at `base`.
    pub fn overlaps(&self, base: A, bytes: u64) -> bool {
        let below = self.0.range(..base.saturating_add(bytes)).next_back();
        below.is_some_and(|(start, (len, _))| start.saturating_add(*len) > base)
    }

    /// The parts of `range`, in order, that lie in ranges of the map.
    pub fn parts_in(&self, range: &Range<A>) -> impl Iterator<Item = Range<A>> + use<'_, A, T> {
        let Range { start, end } = *range;
        let first = self.0.range(..start).next_back();
        let within = (start < end).then(|| self.0.range(start..end)).into_iter().flatten();
        first
            .into_iter()
            .chain(within)
            .map(move |(base, (bytes, _))| start.max(*base)..end.min(base.saturating_add(*bytes)))
            .filter(|part| part.start < part.end)
    }

    /// The parts of `range`, in order, that lie in no range of the map.
    pub fn gaps_in(&self, range: &Range<A>) -> Vec<Range<A>> {
        let (mut gaps, mut at) = (Vec::new(), range.start);
        for part in self.parts_in(range) {
            gaps.push(at..part.start);
            at = part.end;
        }
        gaps.push(at..range.end);
        gaps.retain(|gap| gap.start < gap.end);
        gaps
    }

    /// Base, bytes and value of the ranges that begin within a range.
    pub fn beginning_in(&mut self, range: Range<A>) -> impl Iterator<Item = (A, u64, &mut T)> {
        self.0.range_mut(range).map(|(base, (bytes, value))| (*base, *bytes, value))
    }

    /// Base, bytes and value of all ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = (A, u64, &T)> {
        self.0.iter().map(|(base, (bytes, value))| (*base, *bytes, value))
    }

    /// Keeps only the ranges for which `keep` holds, by base, bytes and value.
    pub fn retain(&mut self, mut keep: impl FnMut(A, u64, &mut T) -> bool) {
        self.0.retain(|base, (bytes, value)| keep(*base, *bytes, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Probes of a map; Miri takes seconds for each.
    const PROBES: usize = if cfg!(miri) { 1 } else { 20 };

    proptest! {
        #[test]
        fn it_answers_as_a_list_does(
            ranges in prop::collection::vec((0u64..1000, 1u64..20, any::<bool>()), 0..60),
            probes in prop::collection::vec((0u64..1100, 0u64..100), PROBES),
        ) {
            let mut map = RangeMap::new();
            let mut list: Vec<(u64, u64)> = Vec::new();
            for (base, bytes, removes) in ranges {
                if removes && !list.is_empty() {
                    let (base, bytes) = list.swap_remove(base as usize % list.len());
                    prop_assert_eq!(map.remove(base), Some((bytes, base)));
                    continue;
                }
                let clash = list.iter().any(|(b, n)| base < b + n && *b < base + bytes);
                prop_assert_eq!(map.overlaps(base, bytes), clash);
                if !clash {
                    map.insert(base, bytes, base);
                    list.push((base, bytes));
                }
            }
            list.sort_unstable();
            prop_assert_eq!(map.iter().map(|(b, n, _)| (b, n)).collect::<Vec<_>>(), list.clone());
            for (at, bytes) in probes {
                let expected = list.iter().find(|(b, n)| (*b..b + n).contains(&at)).copied();
                prop_assert_eq!(map.find(at).map(|(b, n, _)| (b, n)), expected);
                prop_assert_eq!(map.find_mut(at).map(|(b, n, _)| (b, n)), expected);
                let within: Vec<_> = list.iter().filter(|(b, _)| (at..at + bytes).contains(b)).copied().collect();
                prop_assert_eq!(map.beginning_in(at..at + bytes).map(|(b, n, _)| (b, n)).collect::<Vec<_>>(), within);
                let held = |byte: u64| list.iter().any(|(b, n)| (*b..b + n).contains(&byte));
                let bytes_of = |parts: Vec<Range<u64>>| parts.into_iter().flatten().collect::<Vec<u64>>();
                let (inside, outside): (Vec<u64>, Vec<u64>) = (at..at + bytes).partition(|byte| held(*byte));
                prop_assert_eq!(bytes_of(map.parts_in(&(at..at + bytes)).collect()), inside);
                prop_assert_eq!(bytes_of(map.gaps_in(&(at..at + bytes))), outside);
            }
            map.retain(|base, bytes, _| !(base + bytes).is_multiple_of(3));
            list.retain(|(base, bytes)| !(base + bytes).is_multiple_of(3));
            prop_assert_eq!(map.len(), list.len());
        }
    }

    #[test]
    fn the_last_addresses_are_found() {
        let mut map = RangeMap::new();
        map.insert(u64::MAX - 9, 10, ());
        assert!(map.overlaps(u64::MAX - 4, 100) && !map.overlaps(u64::MAX - 19, 10));
        assert!(map.find(u64::MAX).is_some() && map.find(u64::MAX - 10).is_none());
        *map.get_mut(u64::MAX - 9).expect("it begins there") = ();
        assert_eq!(
            (map.get(u64::MAX - 9), map.get(u64::MAX), map.is_empty()),
            (Some((10, &())), None, false)
        );
    }
}
