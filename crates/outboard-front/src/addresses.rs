//! The map of allocations: which of them holds an address. Nearly every call with an address uses
//! it, on many threads, with a hundred thousand allocations alive; a look-up therefore takes no
//! lock and writes to no memory that other threads use.
//!
//! It is a tree of two levels: chunks of a few dozen ranges, in order, and the list of chunks. A
//! change makes a new copy of one chunk, and of the list when a chunk is split or empty.

use std::sync::Arc;

use arc_swap::ArcSwap;
use outboard_wire::UnifiedPtr;
use parking_lot::Mutex;

#[cfg(test)]
thread_local! {
    /// How often this thread has looked an address up.
    pub(crate) static LOOK_UPS: core::cell::Cell<usize> = const { core::cell::Cell::new(0) };
}

/// Most ranges of a chunk.
const CHUNK: usize = 64;
/// No range begins there.
const LAST: UnifiedPtr = UnifiedPtr(u64::MAX);

/// Ranges that do not overlap, in order: where each begins, and the rest of it. All in one place,
/// as each look at a map of this size is a few misses of the cache.
#[derive(Clone)]
struct Chunk<T> {
    /// After the last one comes [`LAST`].
    bases: [UnifiedPtr; CHUNK],
    ranges: [Option<(u64, T)>; CHUNK],
}

/// The chunks in order. All ranges of a chunk begin at its bound or behind it, and before the next
/// chunk's.
struct List<T> {
    bounds: Vec<UnifiedPtr>,
    chunks: Vec<ArcSwap<Chunk<T>>>,
}

/// A map from ranges of addresses, which do not overlap, to values.
pub(crate) struct Addresses<T> {
    list: ArcSwap<List<T>>,
    /// Held by the thread that changes the map.
    change: Mutex<()>,
}

impl<T: Copy> Chunk<T> {
    /// Of at most `CHUNK` ranges.
    fn of(ranges: &[(UnifiedPtr, u64, T)]) -> Arc<Chunk<T>> {
        let mut chunk = Chunk { bases: [LAST; CHUNK], ranges: [None; CHUNK] };
        for (index, (base, bytes, value)) in ranges.iter().enumerate() {
            chunk.bases[index] = *base;
            chunk.ranges[index] = Some((*bytes, *value));
        }
        Arc::new(chunk)
    }

    /// A copy that is changed.
    fn changed(&self, change: impl FnOnce(&mut Chunk<T>)) -> Arc<Chunk<T>> {
        let mut new = self.clone();
        change(&mut new);
        Arc::new(new)
    }

    /// How many ranges there are.
    fn len(&self) -> usize {
        self.bases.partition_point(|base| *base < LAST)
    }

    /// Puts a range in front of the one with this index, of `len`, of which there is room for
    /// another one.
    fn insert(&mut self, index: usize, len: usize, base: UnifiedPtr, range: (u64, T)) {
        self.bases.copy_within(index..len, index + 1);
        self.ranges.copy_within(index..len, index + 1);
        (self.bases[index], self.ranges[index]) = (base, Some(range));
    }

    /// Takes out the range with this index, of `len`.
    fn remove(&mut self, index: usize, len: usize) {
        self.bases.copy_within(index + 1..len, index);
        self.ranges.copy_within(index + 1..len, index);
        (self.bases[len - 1], self.ranges[len - 1]) = (LAST, None);
    }

    fn iter(&self) -> impl Iterator<Item = (UnifiedPtr, u64, T)> {
        self.bases
            .iter()
            .zip(&self.ranges)
            .map_while(|(base, range)| range.map(|(bytes, value)| (*base, bytes, value)))
    }

    /// The last range that begins before `end`.
    #[inline]
    fn last_before(&self, end: UnifiedPtr) -> Option<(UnifiedPtr, u64, T)> {
        let index = self.bases.partition_point(|base| *base < end).checked_sub(1)?;
        let (bytes, value) = self.ranges[index]?;
        Some((self.bases[index], bytes, value))
    }
}

impl<T: Copy> List<T> {
    fn new() -> List<T> {
        List { bounds: vec![UnifiedPtr::NULL], chunks: vec![ArcSwap::new(Chunk::of(&[]))] }
    }

    fn push(&mut self, bound: UnifiedPtr, chunk: Arc<Chunk<T>>) {
        self.bounds.push(bound);
        self.chunks.push(ArcSwap::new(chunk));
    }

    /// The chunk where a range that begins at `base` is, or would be.
    fn chunk_of(&self, base: UnifiedPtr) -> usize {
        // The first bound is 0.
        self.bounds.partition_point(|bound| *bound <= base) - 1
    }

    /// The last range that begins before `end`. Chunks change while we look, but a range stays in
    /// its chunk as long as the list is the same.
    fn last_before(&self, end: UnifiedPtr) -> Option<(UnifiedPtr, u64, T)> {
        let from = self.chunk_of(UnifiedPtr(end.0.checked_sub(1)?));
        self.chunks[..=from].iter().rev().find_map(|chunk| chunk.load().last_before(end))
    }
}

impl<T: Copy> Addresses<T> {
    pub(crate) fn new() -> Addresses<T> {
        Addresses { list: ArcSwap::from_pointee(List::new()), change: Mutex::new(()) }
    }

    /// Base, bytes and value of the range that holds `address`.
    #[inline]
    pub(crate) fn find(&self, address: UnifiedPtr) -> Option<(UnifiedPtr, u64, T)> {
        #[cfg(test)]
        LOOK_UPS.with(|count| count.set(count.get() + 1));
        let found = self.list.load().last_before(address.checked_add(1)?)?;
        (address.since(found.0) < found.1).then_some(found)
    }

    /// Whether any range shares an address with these `bytes` at `base`.
    pub(crate) fn overlaps(&self, base: UnifiedPtr, bytes: u64) -> bool {
        let found = self.list.load().last_before(base.saturating_add(bytes));
        found.is_some_and(|(start, len, _)| start.saturating_add(len) > base)
    }

    /// For tests: how many ranges there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.list.load().chunks.iter().map(|chunk| chunk.load().iter().count()).sum()
    }

    /// Adds the range of `bytes` at `base`.
    pub(crate) fn insert(&self, base: UnifiedPtr, bytes: u64, value: T) {
        self.edit(base, |_| Some((bytes, value)));
    }

    /// Takes out the range that starts at `base` if its value is `wanted`.
    pub(crate) fn remove(
        &self,
        base: UnifiedPtr,
        wanted: impl FnOnce(&T) -> bool,
    ) -> Option<(u64, T)> {
        let mut taken = None;
        self.edit(base, |known| {
            let (bytes, value) = known?;
            if !wanted(&value) {
                return Some((bytes, value));
            }
            taken = Some((bytes, value));
            None
        });
        taken
    }

    /// Changes the value of the range that holds `address`. `false` if there is none.
    pub(crate) fn update(&self, address: UnifiedPtr, change: impl FnOnce(&mut T)) -> bool {
        let Some((base, ..)) = self.find(address) else { return false };
        let mut found = false;
        self.edit(base, |known| {
            known.map(|(bytes, mut value)| {
                change(&mut value);
                found = true;
                (bytes, value)
            })
        });
        found
    }

    /// Keeps only the ranges for which `keep` holds.
    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        let _changing = self.change.lock();
        let list = self.list.load_full();
        let chunks: Vec<Arc<Chunk<T>>> = list.chunks.iter().map(ArcSwap::load_full).collect();
        if chunks.iter().flat_map(|chunk| chunk.iter()).all(|(_, _, value)| keep(&value)) {
            return;
        }
        let kept: Vec<_> = chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .filter(|(_, _, value)| keep(value))
            .collect();
        let mut new = List { bounds: Vec::new(), chunks: Vec::new() };
        for part in kept.chunks(CHUNK / 2) {
            new.push(part[0].0, Chunk::of(part));
        }
        if new.chunks.is_empty() {
            new = List::new();
        }
        new.bounds[0] = UnifiedPtr::NULL;
        self.list.store(Arc::new(new));
    }

    /// Sets what there is at `base`: bytes and value, by what there was.
    fn edit(&self, base: UnifiedPtr, change: impl FnOnce(Option<(u64, T)>) -> Option<(u64, T)>) {
        let _changing = self.change.lock();
        let list = self.list.load();
        let at = list.chunk_of(base);
        let chunk = list.chunks[at].load();
        let len = chunk.len();
        let place = chunk.bases[..len].binary_search(&base);
        let known = place.ok().and_then(|index| chunk.ranges[index]);
        let new = match (place, change(known)) {
            (Ok(index), Some(range)) => chunk.changed(|chunk| chunk.ranges[index] = Some(range)),
            (Err(index), Some(range)) if len < CHUNK => {
                chunk.changed(|chunk| chunk.insert(index, len, base, range))
            }
            // The first chunk stays, empty or not: its bound is where a search ends.
            (Ok(index), None) if at == 0 || len > 1 => {
                chunk.changed(|chunk| chunk.remove(index, len))
            }
            (Err(index), Some((bytes, value))) => {
                let mut ranges: Vec<_> = chunk.iter().collect();
                ranges.insert(index, (base, bytes, value));
                return self.replace(&list, at, &ranges);
            }
            (Ok(_), None) => return self.replace(&list, at, &[]),
            (Err(_), None) => return,
        };
        list.chunks[at].store(new);
    }

    /// Makes a list in which two chunks, or none, take the place of one.
    fn replace(&self, list: &List<T>, at: usize, ranges: &[(UnifiedPtr, u64, T)]) {
        let mut new =
            List { bounds: Vec::with_capacity(list.bounds.len() + 1), chunks: Vec::new() };
        for (index, (bound, chunk)) in list.bounds.iter().zip(&list.chunks).enumerate() {
            if index != at {
                new.push(*bound, chunk.load_full());
            } else if !ranges.is_empty() {
                // Addresses mostly grow: the last chunk leaves a nearly full one behind.
                let middle =
                    if at + 1 == list.chunks.len() { CHUNK - CHUNK / 8 } else { CHUNK / 2 };
                let (first, rest) = ranges.split_at(middle);
                new.push(*bound, Chunk::of(first));
                new.push(rest[0].0, Chunk::of(rest));
            }
        }
        self.list.store(Arc::new(new));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, u64),
        Remove(u64),
        Update(u64, u64),
        Retain(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0u64..4000, 1u64..9).prop_map(|(base, bytes)| Step::Insert(base, bytes)),
            5 => (0u64..4000).prop_map(Step::Remove),
            1 => (0u64..4000, 0u64..9).prop_map(|(address, value)| Step::Update(address, value)),
            1 => (2u64..40).prop_map(Step::Retain),
        ]
    }

    /// Most steps; Miri takes a second for some of them.
    const STEPS: usize = if cfg!(miri) { 100 } else { 1500 };

    proptest! {
        #[test]
        fn it_answers_as_a_list_does(steps in prop::collection::vec(step(), 0..STEPS), probes in prop::collection::vec(0u64..4100, 50)) {
            let map = Addresses::new();
            let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            let holding = |model: &BTreeMap<u64, (u64, u64)>, address: u64| {
                model.iter().find(|(base, (bytes, _))| (**base..**base + bytes).contains(&address)).map(|(base, (bytes, value))| (UnifiedPtr(*base), *bytes, *value))
            };
            for step in steps {
                match step {
                    Step::Insert(base, bytes) => {
                        let clash = model.iter().any(|(b, (n, _))| base < b + n && *b < base + bytes);
                        prop_assert_eq!(map.overlaps(UnifiedPtr(base), bytes), clash);
                        if !clash {
                            map.insert(UnifiedPtr(base), bytes, base);
                            model.insert(base, (bytes, base));
                        }
                    }
                    Step::Remove(near) => {
                        let base = model.range(near..).next().map_or(near, |(base, _)| *base);
                        prop_assert_eq!(map.remove(UnifiedPtr(base), |value| value % 5 != 0), model.get(&base).copied().filter(|(_, value)| value % 5 != 0));
                        if model.get(&base).is_some_and(|(_, value)| value % 5 != 0) {
                            model.remove(&base);
                        }
                    }
                    Step::Update(address, value) => {
                        let found = holding(&model, address);
                        prop_assert_eq!(map.update(UnifiedPtr(address), |old| *old = value), found.is_some());
                        if let Some((base, bytes, _)) = found {
                            model.insert(base.0, (bytes, value));
                        }
                    }
                    Step::Retain(divisor) => {
                        map.retain(|value| value % divisor != 1);
                        model.retain(|_, (_, value)| *value % divisor != 1);
                    }
                }
            }
            for probe in probes {
                prop_assert_eq!(map.find(UnifiedPtr(probe)), holding(&model, probe));
            }
            prop_assert_eq!(map.find(UnifiedPtr(u64::MAX)), None);
        }
    }

    /// An allocation that stays is found at any time, whatever is added and removed around it.
    #[test]
    fn what_stays_is_always_found() {
        let map = Addresses::new();
        for index in 0..1000 {
            map.insert(UnifiedPtr(index * 100), 10, index);
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                const ROUNDS: u64 = if cfg!(miri) { 200 } else { 20_000 };
                for round in 0..ROUNDS {
                    let base = (round * 7919) % 1000 * 100 + 20 + round % 7 * 10;
                    map.insert(UnifiedPtr(base), 10, u64::MAX);
                    if round % 3 != 0 {
                        map.remove(UnifiedPtr(base), |_| true);
                    }
                    if round % 500 == 0 {
                        map.retain(|value| *value != u64::MAX);
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
            let mut index = 0;
            while !done.load(Ordering::Relaxed) {
                index = (index + 17) % 1000;
                assert_eq!(
                    map.find(UnifiedPtr(index * 100 + 5)),
                    Some((UnifiedPtr(index * 100), 10, index))
                );
                assert_eq!(map.find(UnifiedPtr(index * 100 + 15)), None);
            }
        });
    }
}
