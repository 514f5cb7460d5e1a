//! The tracked ranges as the fault handler sees them: it may not take locks, since the thread that it interrupts may hold any.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Ranges, ascending: first address, and the one behind the last.
type Ranges = Vec<(u64, u64)>;

/// A list that is replaced as a whole.
pub(super) struct Table {
    current: AtomicPtr<Ranges>,
    readers: AtomicUsize,
}

impl Table {
    pub(super) const fn new() -> Table {
        Table { current: AtomicPtr::new(null_mut()), readers: AtomicUsize::new(0) }
    }

    /// Whether the address is in one of the ranges. Takes no lock and allocates nothing.
    pub(super) fn contains(&self, address: u64) -> bool {
        self.readers.fetch_add(1, Ordering::SeqCst);
        let ranges = self.current.load(Ordering::SeqCst);
        // SAFETY: null, or a list that `replace` frees only when it has seen no reader after it took the list out; this one has said
        // that it reads before it loaded the pointer.
        let found = unsafe { ranges.as_ref() }.is_some_and(|ranges| {
            let behind = ranges.partition_point(|(start, _)| *start <= address);
            behind > 0 && address < ranges[behind - 1].1
        });
        self.readers.fetch_sub(1, Ordering::SeqCst);
        found
    }

    /// Calls for each range, in a forked child: nobody else is there to replace the list.
    pub(super) fn each(&self, mut call: impl FnMut(u64, u64)) {
        // SAFETY: null, or a list that only another thread could free.
        if let Some(ranges) = unsafe { self.current.load(Ordering::SeqCst).as_ref() } {
            ranges.iter().for_each(|(start, end)| call(*start, *end));
        }
    }

    /// Puts another list in place. One caller at a time.
    pub(super) fn replace(&self, ranges: Ranges) {
        let old = self.current.swap(Box::into_raw(Box::new(ranges)), Ordering::SeqCst);
        // Readers take nanoseconds, unless they are preempted.
        while self.readers.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        if !old.is_null() {
            // SAFETY: made by `Box::into_raw` above, taken out above, and nobody reads it: there was a moment without readers since.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_in_and_nothing_else() {
        let table = Table::new();
        assert!(!table.contains(5));
        table.replace(vec![(10, 20), (20, 30), (40, 50)]);
        for (address, inside) in [(9, false), (10, true), (29, true), (30, false), (39, false), (49, true), (50, false)]
        {
            assert_eq!(table.contains(address), inside, "{address}");
        }
        table.replace(vec![]);
        assert!(!table.contains(10));
    }

    #[test]
    fn lists_are_replaced_under_readers() {
        let table = Table::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..20_000u64).for_each(|i| assert!(!table.contains(1000 + i))));
            }
            (0..2000).for_each(|i| table.replace(vec![(i % 500, i % 500 + 1)]));
        });
    }
}
