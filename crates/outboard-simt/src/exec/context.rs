//! The structures that compiled code reads through its two context pointers.
//!
//! Their layout is fixed (`repr(C)`); the code generator takes field offsets with `offset_of!`, so
//! both sides always agree.

use crate::exec::block::BlockState;
use corosensei::Yielder;
use std::cell::Cell;

/// Status of a compiled function: it returned.
pub(crate) const STATUS_DONE: u32 = 0;
/// The thread executed `exit`.
pub(crate) const STATUS_EXIT: u32 = 1;
/// The thread faulted, and the fault is recorded in its block.
pub(crate) const STATUS_FAULT: u32 = 2;

/// Every compiled function: block and thread context, own frame in local memory, argument area,
/// result area; returns a status.
pub(crate) type CodePtr =
    unsafe extern "C" fn(*const BlockContext, *const ThreadContext, u64, u64, u64) -> u32;

/// Bytes of the workspace of a cooperative grid, which `%envreg1` and `%envreg2` (upper and lower
/// half of its address) tell. CUDA's header for cooperative groups finds two words there: a size,
/// and the counter by which the grid synchronises.
pub(crate) const WORKSPACE_BYTES: u64 = 16;

/// The first word of the exchange area that holds values; each has two words.
pub(crate) const EXCHANGE_VALUES: usize = 8;

/// What is the same for all threads of a block.
#[repr(C)]
pub(crate) struct BlockContext {
    pub(crate) ctaid: [u32; 3],
    pub(crate) ntid: [u32; 3],
    pub(crate) nctaid: [u32; 3],
    pub(crate) nwarp: u32,
    pub(crate) smid: u32,
    pub(crate) nsmid: u32,
    pub(crate) dynamic_shared: u32,
    pub(crate) total_shared: u32,
    /// 1 if warps have threads of more than one row of the block.
    pub(crate) across_rows: u32,
    /// Offset of dynamic shared memory in the window.
    pub(crate) dynamic_offset: u64,
    pub(crate) grid_id: u64,
    /// Address of the parameter buffer, in the arena.
    pub(crate) params: u64,
    /// Address of the cooperative grid's workspace, 0 without one; see [`WORKSPACE_BYTES`].
    pub(crate) workspace: u64,
    /// Generic address and size of the shared window.
    pub(crate) shared_base: u64,
    pub(crate) shared_size: u64,
    pub(crate) arena_base: u64,
    pub(crate) table: u64,
    pub(crate) state: *const BlockState,
}

/// What is a thread's own.
#[repr(C)]
pub(crate) struct ThreadContext {
    pub(crate) tid: [u32; 3],
    /// Linear index in the block.
    pub(crate) linear: u32,
    /// Generic address and size of the local window.
    pub(crate) local_base: u64,
    pub(crate) local_size: u64,
    /// A function may be entered while the stack pointer is above this.
    pub(crate) stack_limit: u64,
    /// Turns of spinning loops left before the thread lets others run.
    pub(crate) spin_budget: Cell<u32>,
    /// Second result of a runtime function: the predicate of `shfl` and the like.
    pub(crate) result_pred: Cell<u32>,
    /// What a suspended thread gets when it goes on.
    pub(crate) result: Cell<u64>,
    /// The registered host range last accessed (start, length), and the state of the registrations
    /// it was found in.
    pub(crate) host_range: Cell<(u64, u64)>,
    pub(crate) host_seen: Cell<u64>,
    /// Operands and results of texture and surface instructions: coordinates, a level, and from
    /// [`EXCHANGE_VALUES`] on values.
    pub(crate) exchange: Cell<[u32; 16]>,
    pub(crate) block: *const BlockContext,
    /// How to suspend; null where threads run in a plain loop.
    pub(crate) yielder: Cell<*const Yielder<(), ()>>,
}

impl ThreadContext {
    pub(crate) fn lane(&self) -> u32 {
        self.linear % 32
    }

    pub(crate) fn warp(&self) -> usize {
        (self.linear / 32) as usize
    }

    /// State of the block the thread belongs to.
    pub(crate) fn state(&self) -> &BlockState {
        // SAFETY: both pointers are set before the thread is started, and what they point to
        // outlives the block's run.
        unsafe { &*(*self.block).state }
    }

    /// Lets the scheduler run other threads of the block; returns when it comes back to this one.
    pub(crate) fn suspend(&self) {
        let yielder = self.yielder.get();
        if !yielder.is_null() {
            // SAFETY: the pointer was stored by the coroutine this code runs in and is valid while
            // that runs.
            unsafe { (*yielder).suspend(()) };
        }
    }
}

impl Default for ThreadContext {
    fn default() -> Self {
        ThreadContext {
            tid: [0; 3],
            linear: 0,
            local_base: 0,
            local_size: 0,
            stack_limit: 0,
            spin_budget: Cell::new(0),
            result_pred: Cell::new(0),
            result: Cell::new(0),
            host_range: Cell::new((0, 0)),
            host_seen: Cell::new(0),
            exchange: Cell::new([0; 16]),
            block: std::ptr::null(),
            yielder: Cell::new(std::ptr::null()),
        }
    }
}
