//! What one running block needs besides its code: shared memory, local memory and stacks. Slots are
//! kept and used again.

use crate::fault::{Fault, FaultKind};
use crate::memory::{Mapping, Memory, OutOfMemory};
use corosensei::stack::{STACK_ALIGNMENT, Stack, StackPointer};
use std::num::NonZeroUsize;

/// Most shared memory of a block in bytes.
pub(crate) const SHARED_MAX: u64 = 228 << 10;
/// Stack for threads that run one after another.
const MAIN_STACK: u64 = 4 << 20;
/// Below this much left of a stack no function is entered: runtime functions need it.
pub(crate) const STACK_MARGIN: u64 = 96 << 10;

/// Resources of one running block.
pub(crate) struct Slot {
    shared: u64,
    shared_marked: u64,
    local: u64,
    local_capacity: u64,
    main_stack: Mapping,
    stacks: Option<Mapping>,
}

impl Slot {
    pub(crate) fn new(memory: &Memory) -> Result<Slot, FaultKind> {
        let main_stack =
            Mapping::new(MAIN_STACK).map_err(|e| FaultKind::OutOfResources(e.to_string()))?;
        let shared = memory.alloc_internal(SHARED_MAX + 1024).map_err(internal)?;
        memory.mark(shared, SHARED_MAX + 1024, 0);
        Ok(Slot { shared, shared_marked: 0, local: 0, local_capacity: 0, main_stack, stacks: None })
    }

    /// Makes the slot ready for blocks of a launch: `shared` bytes of shared memory, `local` bytes
    /// of local memory in all, and `count` stacks of `stack` bytes.
    pub(crate) fn prepare(
        &mut self,
        memory: &Memory,
        shared: u64,
        local: u64,
        count: u64,
        stack: u64,
    ) -> Result<(), FaultKind> {
        if self.shared_marked != shared {
            memory.mark(self.shared, self.shared_marked, 0);
            memory.mark(self.shared, shared, 1);
            self.shared_marked = shared;
        }
        if self.local_capacity < local {
            if self.local != 0 {
                memory.free_internal(self.local);
                self.local_capacity = 0;
            }
            self.local = memory.alloc_internal(local).map_err(internal)?;
            self.local_capacity = local;
        }
        let bytes = count * stack;
        if bytes > 0 && self.stacks.as_ref().is_none_or(|s| s.len < bytes) {
            self.stacks = None;
            self.stacks =
                Some(Mapping::new(bytes).map_err(|e| FaultKind::OutOfResources(e.to_string()))?);
        }
        Ok(())
    }

    /// Gives memory back to the engine.
    pub(crate) fn release(self, memory: &Memory) {
        memory.free_internal(self.shared);
        if self.local != 0 {
            memory.free_internal(self.local);
        }
    }

    pub(crate) fn shared(&self) -> u64 {
        self.shared
    }

    pub(crate) fn local(&self) -> u64 {
        self.local
    }

    /// The stack for threads that run one after another.
    pub(crate) fn main_stack(&self) -> StackSlice {
        StackSlice::new(self.main_stack.base, self.main_stack.len, 0)
    }

    /// Stack `index` of those of `size` bytes.
    pub(crate) fn stack(&self, index: u64, size: u64) -> StackSlice {
        let base = self.stacks.as_ref().map_or(0, |s| s.base);
        StackSlice::new(base + index * size, size, index)
    }
}

fn internal(error: OutOfMemory) -> FaultKind {
    FaultKind::OutOfResources(error.to_string())
}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Fault {
        Fault {
            kind,
            kernel: String::new(),
            function: String::new(),
            line: 0,
            block: [0; 3],
            thread: [0; 3],
        }
    }
}

/// A part of a mapping, used as the stack of a coroutine.
pub(crate) struct StackSlice {
    limit: usize,
    base: usize,
}

impl StackSlice {
    fn new(start: u64, len: u64, index: u64) -> StackSlice {
        // Stacks whose tops are a multiple of the page size apart would all fall into the same sets
        // of the caches.
        let colour = index % 8 * 448;
        let base = (start + len - colour) & !(STACK_ALIGNMENT as u64 - 1);
        StackSlice { limit: start as usize, base: base as usize }
    }

    /// Where a function must not be entered any more.
    pub(crate) fn entry_limit(&self, largest_frame: u64) -> u64 {
        self.limit as u64 + STACK_MARGIN + largest_frame
    }
}

// SAFETY: the slice has far more than the minimum size. In place of a guard page, each compiled
// function that can take part in a recursion compares the stack pointer with `entry_limit` before
// it runs, and what lies above the limit is enough for the largest frame and for every runtime
// function; so no access leaves the slice.
unsafe impl Stack for StackSlice {
    fn base(&self) -> StackPointer {
        NonZeroUsize::new(self.base).unwrap_or(NonZeroUsize::MAX)
    }

    fn limit(&self) -> StackPointer {
        NonZeroUsize::new(self.limit).unwrap_or(NonZeroUsize::MAX)
    }
}
