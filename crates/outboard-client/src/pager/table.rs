//! The tracked ranges as the fault handler sees them: it may not take locks, since the thread that
//! it interrupts may hold any.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use outboard_wire::UnifiedPtr;
use parking_lot::Mutex;

/// First address, the one behind the last, and whose it is.
type Range<T> = (UnifiedPtr, UnifiedPtr, &'static T);

/// Ranges of several owners: a list that is replaced as a whole.
pub(super) struct Table<T: 'static> {
    /// Ascending.
    current: AtomicPtr<Vec<Range<T>>>,
    readers: AtomicUsize,
    /// Held while the list is replaced.
    replacing: Mutex<()>,
}

impl<T> Table<T> {
    pub(super) const fn new() -> Table<T> {
        Table {
            current: AtomicPtr::new(null_mut()),
            readers: AtomicUsize::new(0),
            replacing: Mutex::new(()),
        }
    }

    /// Whose range the address is in. Takes no lock and allocates nothing.
    pub(super) fn find(&self, address: UnifiedPtr) -> Option<&'static T> {
        self.readers.fetch_add(1, Ordering::SeqCst);
        let ranges = self.current.load(Ordering::SeqCst);
        // SAFETY: null, or a list that `replace` frees only when it has seen no reader after it
        // took the list out; this one has said that it reads before it loaded the pointer.
        let found = unsafe { ranges.as_ref() }.and_then(|ranges| {
            let behind = ranges.partition_point(|(start, ..)| *start <= address);
            let (_, end, owner) = ranges.get(behind.checked_sub(1)?)?;
            (address < *end).then_some(*owner)
        });
        self.readers.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Calls for each range, in a forked child: nobody else is there to replace the list.
    pub(super) fn each(&self, mut call: impl FnMut(UnifiedPtr, UnifiedPtr)) {
        // SAFETY: null, or a list that only another thread could free.
        if let Some(ranges) = unsafe { self.current.load(Ordering::SeqCst).as_ref() } {
            ranges.iter().for_each(|(start, end, _)| call(*start, *end));
        }
    }

    /// Puts other ranges in the place of an owner's.
    pub(super) fn replace(
        &self,
        owner: &'static T,
        ranges: impl IntoIterator<Item = (UnifiedPtr, UnifiedPtr)>,
    ) {
        let _one_at_a_time = self.replacing.lock();
        // SAFETY: null, or a list that only this method frees, which one thread is in.
        let others = unsafe { self.current.load(Ordering::SeqCst).as_ref() }.into_iter().flatten();
        let others = others.filter(|(_, _, other)| !std::ptr::eq(*other, owner)).copied();
        let mut all: Vec<Range<T>> =
            others.chain(ranges.into_iter().map(|(start, end)| (start, end, owner))).collect();
        all.sort_unstable_by_key(|(start, ..)| *start);
        let old = self.current.swap(Box::into_raw(Box::new(all)), Ordering::SeqCst);
        // Readers take nanoseconds, unless they are preempted.
        while self.readers.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        if !old.is_null() {
            // SAFETY: made by `Box::into_raw` above, taken out above, and nobody reads it: there
            // was a moment without readers since.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: u8 = 1;
    static OTHER: u8 = 2;

    fn ranges(bounds: &[(u64, u64)]) -> Vec<(UnifiedPtr, UnifiedPtr)> {
        bounds.iter().map(|(start, end)| (UnifiedPtr(*start), UnifiedPtr(*end))).collect()
    }

    #[test]
    fn finds_what_is_in_and_nothing_else() {
        let table = Table::new();
        assert!(table.find(UnifiedPtr(5)).is_none());
        table.replace(&ONE, ranges(&[(10, 20), (20, 30), (40, 50)]));
        for (address, inside) in
            [(9, false), (10, true), (29, true), (30, false), (39, false), (49, true), (50, false)]
        {
            assert_eq!(table.find(UnifiedPtr(address)).is_some(), inside, "{address}");
        }
        table.replace(&ONE, []);
        assert!(table.find(UnifiedPtr(10)).is_none());
    }

    #[test]
    fn each_owner_replaces_its_own() {
        let table = Table::new();
        let found =
            |places: [u64; 3]| places.map(|address| table.find(UnifiedPtr(address)).copied());
        table.replace(&ONE, ranges(&[(10, 20), (40, 50)]));
        table.replace(&OTHER, ranges(&[(20, 30)]));
        assert_eq!(found([15, 25, 45]), [Some(1), Some(2), Some(1)]);
        table.replace(&ONE, ranges(&[(0, 5)]));
        assert_eq!(found([3, 15, 25]), [Some(1), None, Some(2)]);
    }

    #[test]
    fn lists_are_replaced_under_readers() {
        let table = Table::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..20_000u64).for_each(|i| assert!(table.find(UnifiedPtr(1000 + i)).is_none()))
                });
            }
            (0..2000).for_each(|i| table.replace(&ONE, ranges(&[(i % 500, i % 500 + 1)])));
        });
    }
}
