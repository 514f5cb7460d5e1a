//! The heap of `malloc` and `free` in kernels.

use crate::limit::Limit;
use crate::memory::Memory;
use outboard_ranges::FreeRanges;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Alignment and granularity of allocations, as CUDA guarantees.
const ALIGN: u64 = 16;

/// Device heap of an engine; its memory is taken on first use.
#[derive(Default)]
pub(crate) struct Heap {
    state: Mutex<Option<HeapState>>,
}

struct HeapState {
    /// Bytes, by address.
    live: BTreeMap<u64, u64>,
    free: FreeRanges,
}

impl Heap {
    /// Allocates `bytes`, or gives 0 when the heap is full.
    pub(crate) fn malloc(&self, core: &crate::exec::pool::Core, bytes: u64) -> u64 {
        self.malloc_in(&core.memory, core.limit(Limit::MallocHeap), bytes)
    }

    fn malloc_in(&self, memory: &Memory, heap_bytes: u64, bytes: u64) -> u64 {
        let mut state = self.state.lock();
        if state.is_none() {
            let size = heap_bytes.max(ALIGN).next_multiple_of(ALIGN);
            let Ok(base) = memory.alloc_internal(size) else { return 0 };
            let mut free = FreeRanges::new();
            free.give(base, size);
            *state = Some(HeapState { live: BTreeMap::new(), free });
        }
        let Some(state) = state.as_mut() else { return 0 };
        let Some(size) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return 0 };
        let Some(start) = state.free.take(size, ALIGN) else { return 0 };
        state.live.insert(start, size);
        start
    }

    /// Frees an allocation; false when `addr` is none.
    pub(crate) fn free(&self, addr: u64) -> bool {
        let mut state = self.state.lock();
        let Some(state) = state.as_mut() else { return false };
        let Some(size) = state.live.remove(&addr) else { return false };
        state.free.give(addr, size);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_heap_gives_null_and_freed_memory_comes_back() {
        let memory = Memory::new(1 << 20, 1 << 40).expect("reserve");
        let heap = Heap::default();
        let a = heap.malloc_in(&memory, 1024, 512);
        let b = heap.malloc_in(&memory, 1024, 500);
        assert!(a != 0 && b != 0 && a.is_multiple_of(16) && memory.is_valid(b));
        assert_eq!(heap.malloc_in(&memory, 1024, 1), 0);
        assert!(heap.free(a) && !heap.free(a) && heap.free(b));
        assert_eq!(heap.malloc_in(&memory, 1024, 1024), a);
    }
}
