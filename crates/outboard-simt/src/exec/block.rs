//! One block of a grid: the state its threads share, and the scheduler that runs them.

use crate::exec::barrier::{BARRIERS, Barrier};
use crate::exec::context::{BlockContext, CodePtr, STATUS_FAULT, ThreadContext};
use crate::exec::grid::Grid;
use crate::exec::slot::{Slot, StackSlice};
use crate::exec::warp::{Collective, Warp, bits};
use crate::fault::{Fault, FaultKind};
use crate::launch::Fifo;
use corosensei::{Coroutine, CoroutineResult};
use std::cell::{Cell, RefCell};

/// Turns of a spinning loop before its thread lets others run.
pub(crate) const SPIN_TURNS: u32 = 32;

/// What runtime functions reach through the thread context. All of it belongs to the one OS thread
/// that runs the block.
pub(crate) struct BlockState {
    pub(crate) grid: *const Grid,
    /// Linear index of the block.
    pub(crate) index: Cell<u64>,
    pub(crate) warps: Vec<Warp>,
    barriers: [Barrier; BARRIERS],
    /// Barriers at which somebody has arrived, one bit each.
    in_use: Cell<u32>,
    /// Threads that have not ended.
    live: Cell<u32>,
    threads: Cell<*const ThreadContext>,
    pub(crate) fault: RefCell<Option<Fault>>,
    pub(crate) output: RefCell<Fifo>,
}

impl BlockState {
    /// The grid the block belongs to.
    pub(crate) fn grid(&self) -> &Grid {
        // SAFETY: a grid outlives the blocks that run for it.
        unsafe { &*self.grid }
    }

    /// Records a fault of `thread`; the first one stays. `site` names function and line, see
    /// [`Grid::site`].
    pub(crate) fn record_fault(&self, thread: &ThreadContext, site: u64, kind: FaultKind) -> u32 {
        let mut fault = self.fault.borrow_mut();
        if fault.is_none() {
            let (function, line) = self.grid().site(site);
            // SAFETY: the block context outlives the run of the block.
            let block = unsafe { (*thread.block).ctaid };
            let kernel = self.grid().kernel_name().to_owned();
            *fault = Some(Fault { kind, kernel, function, line, block, thread: thread.tid });
        }
        STATUS_FAULT
    }

    /// A warp operation with a member mask; returns when it is complete.
    pub(crate) fn collective(
        &self,
        thread: &ThreadContext,
        mask: u32,
        what: Collective,
        value: u64,
    ) -> (u64, bool) {
        let (warp, lane) = (&self.warps[thread.warp()], thread.lane());
        if !warp.arrive(lane, mask, what, value) {
            thread.suspend();
        } else {
            // This thread completed the group and runs on.
            warp.ready.set(warp.ready.get() & !(1 << lane));
        }
        warp.result(lane)
    }

    /// A warp operation of the converged threads.
    pub(crate) fn quiet(
        &self,
        thread: &ThreadContext,
        site: u64,
        what: Collective,
        value: u64,
    ) -> (u64, bool) {
        let (warp, lane) = (&self.warps[thread.warp()], thread.lane());
        warp.arrive_quiet(lane, site, what, value);
        thread.suspend();
        warp.result(lane)
    }

    /// Arrival at a barrier. A reduction over the threads comes back as (threads whose predicate
    /// held, all threads).
    pub(crate) fn barrier(
        &self,
        thread: &ThreadContext,
        id: u32,
        expected: u32,
        waits: bool,
        pred: Option<bool>,
    ) -> (u32, u32) {
        let id = id % BARRIERS as u32;
        let (warp, lane) = (thread.warp(), thread.lane());
        self.barriers[id as usize].arrive(warp, lane, expected, waits, pred);
        self.in_use.set(self.in_use.get() | 1 << id);
        self.release(id);
        if waits {
            let mine = &self.warps[warp].ready;
            if mine.get() & (1 << lane) != 0 {
                // Complete already: runs on.
                mine.set(mine.get() & !(1 << lane));
            } else {
                thread.suspend();
            }
        }
        let result = thread.result.get();
        ((result >> 32) as u32, result as u32)
    }

    /// The thread lets others run, and goes on when they had a turn.
    pub(crate) fn yield_turn(&self, thread: &ThreadContext) {
        let warp = &self.warps[thread.warp()];
        warp.yielded.set(warp.yielded.get() | 1 << thread.lane());
        thread.suspend();
    }

    /// The thread lets the lanes of its warp catch up, if any can run.
    pub(crate) fn step(&self, thread: &ThreadContext, position: u64) {
        if self.warps[thread.warp()].step(thread.lane(), position) {
            thread.suspend();
        }
    }

    fn release(&self, id: u32) {
        let Some(released) = self.barriers[id as usize].complete(self.live.get()) else { return };
        self.in_use.set(self.in_use.get() & !(1 << id));
        let result = u64::from(released.trues) << 32 | u64::from(released.contributions);
        for (index, warp) in self.warps.iter().enumerate() {
            let mask = released.waiting[index];
            warp.ready.set(warp.ready.get() | mask);
            for lane in bits(mask) {
                // SAFETY: only lanes that exist wait, so the index is inside the array of thread
                // contexts, which lives as long as the block; the result is a cell that only this
                // OS thread touches.
                unsafe { (*self.threads.get().add(index * 32 + lane as usize)).result.set(result) };
            }
        }
    }

    fn exit(&self, thread: &ThreadContext) {
        self.live.set(self.live.get() - 1);
        self.warps[thread.warp()].exit(thread.lane());
        bits(self.in_use.get()).for_each(|id| self.release(id));
    }
}

type Thread = Coroutine<(), (), u32, StackSlice>;

/// A block being run, and all it needs. Used for one block after another.
pub(crate) struct BlockRun {
    // Boxed: compiled code and threads hold their addresses.
    context: Box<BlockContext>,
    state: Box<BlockState>,
    threads: Box<[ThreadContext]>,
    coroutines: Vec<Option<Thread>>,
    pub(crate) slot: Slot,
}

/// How far a block has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All threads have ended.
    Finished,
    /// Every thread that can run let others run: it waits for other blocks.
    Spinning,
    /// A fault is recorded.
    Faulted,
}

impl BlockRun {
    /// Prepares to run blocks of `grid` in `slot`.
    pub(crate) fn new(grid: &Grid, slot: Slot, smid: u32) -> BlockRun {
        let threads = grid.threads_per_block();
        let warps = threads.div_ceil(32);
        let state = Box::new(BlockState {
            grid,
            index: Cell::new(0),
            warps: (0..warps).map(|_| Warp::new(0)).collect(),
            barriers: Default::default(),
            in_use: Cell::new(0),
            live: Cell::new(0),
            threads: Cell::new(std::ptr::null()),
            fault: RefCell::new(None),
            output: RefCell::new(Fifo::new(grid.fifo_bytes())),
        });
        let context = Box::new(grid.block_context(&slot, smid, &*state));
        let layout = grid.layout();
        let count = if layout.coroutines { threads } else { 1 };
        let [nx, ny, _] = grid.block();
        let contexts: Box<[ThreadContext]> = (0..count)
            .map(|linear| {
                let stack = if layout.coroutines {
                    slot.stack(u64::from(linear), layout.stack_bytes)
                } else {
                    slot.main_stack()
                };
                ThreadContext {
                    tid: [linear % nx, linear / nx % ny, linear / (nx * ny)],
                    linear,
                    local_base: slot.local() + u64::from(linear) * layout.local_stride,
                    local_size: layout.local_bytes,
                    stack_limit: stack.entry_limit(layout.largest_frame),
                    block: &*context,
                    ..ThreadContext::default()
                }
            })
            .collect();
        state.threads.set(contexts.as_ptr());
        let coroutines = (0..if layout.coroutines { threads } else { 0 }).map(|_| None).collect();
        BlockRun { context, state, threads: contexts, coroutines, slot }
    }

    /// Turns to the block of that linear index.
    pub(crate) fn start(&mut self, grid: &Grid, index: u64) {
        self.context.ctaid = grid.block_index(index);
        self.state.index.set(index);
        if self.coroutines.is_empty() {
            return;
        }
        let threads = self.threads.len() as u32;
        self.state.live.set(threads);
        bits(self.state.in_use.replace(0)).for_each(|id| self.state.barriers[id as usize].reset());
        for (i, warp) in self.state.warps.iter().enumerate() {
            let lanes = (threads - i as u32 * 32).min(32);
            warp.reset(if lanes == 32 { u32::MAX } else { (1 << lanes) - 1 });
        }
        let code = grid.code();
        let stack_bytes = grid.layout().stack_bytes;
        for (i, coroutine) in self.coroutines.iter_mut().enumerate() {
            let stack = self.slot.stack(i as u64, stack_bytes);
            let job = Job { code, context: &*self.context, thread: &self.threads[i] };
            *coroutine = Some(Coroutine::with_stack(stack, move |yielder, ()| {
                let job = job;
                // SAFETY: the contexts outlive the coroutine, which is ended or reset before they
                // go.
                let (context, thread) = unsafe { (&*job.context, &*job.thread) };
                thread.yielder.set(yielder);
                thread.spin_budget.set(SPIN_TURNS);
                // SAFETY: the code was compiled for this signature and checks its own accesses; the
                // pointers are valid as said.
                unsafe { (job.code)(context, thread, thread.local_base, context.params, 0) }
            }));
        }
    }

    /// Runs all threads of the block one after another.
    pub(crate) fn run_plain(&mut self, grid: &Grid) -> Progress {
        let code = grid.code();
        let [nx, ny, nz] = grid.block();
        let context: *const BlockContext = &*self.context;
        let thread = &mut self.threads[0];
        let mut status = 0;
        let params = self.context.params;
        let local = thread.local_base;
        thread.linear = 0;
        'block: for z in 0..nz {
            for y in 0..ny {
                for x in 0..nx {
                    thread.tid = [x, y, z];
                    // SAFETY: as in `start`; the caller switched to the stack that the thread's
                    // limit belongs to.
                    status = unsafe { code(context, thread, local, params, 0) };
                    if status == STATUS_FAULT {
                        break 'block;
                    }
                    thread.linear += 1;
                }
            }
        }
        if status == STATUS_FAULT { Progress::Faulted } else { Progress::Finished }
    }

    /// Runs threads until all have ended, one has faulted, or all that can run spin.
    pub(crate) fn step(&mut self) -> Progress {
        let in_turns = self.state.grid().layout().in_turns;
        loop {
            let mut progress = false;
            for w in 0..self.state.warps.len() {
                while self.state.warps[w].begin_turn() {
                    progress = true;
                    while let Some(lane) = next(&self.state.warps[w].turn) {
                        if self.resume(w, lane) == STATUS_FAULT {
                            self.abandon();
                            return Progress::Faulted;
                        }
                    }
                    // A turn ends at a warp operation or step: warps go forward evenly, as a GPU
                    // has them.
                    if in_turns {
                        break;
                    }
                }
            }
            if self.state.live.get() == 0 {
                return Progress::Finished;
            }
            if progress {
                continue;
            }
            let mut yielded = false;
            for warp in &self.state.warps {
                yielded |= warp.yielded.get() != 0;
                warp.ready.set(warp.ready.get() | warp.yielded.replace(0));
            }
            if yielded {
                return Progress::Spinning;
            }
            self.deadlock();
            self.abandon();
            return Progress::Faulted;
        }
    }

    fn resume(&mut self, warp: usize, lane: u32) -> u32 {
        let index = warp * 32 + lane as usize;
        let Some(coroutine) = self.coroutines[index].as_mut() else { return 0 };
        match coroutine.resume(()) {
            CoroutineResult::Yield(()) => 0,
            CoroutineResult::Return(status) => {
                self.coroutines[index] = None;
                self.threads[index].yielder.set(std::ptr::null());
                self.state.exit(&self.threads[index]);
                status
            }
        }
    }

    fn deadlock(&self) {
        let waiting = self.state.live.get();
        let first = self.coroutines.iter().position(Option::is_some).unwrap_or(0);
        self.state.record_fault(&self.threads[first], 0, FaultKind::Deadlock { waiting });
    }

    /// Ends the threads that are left without running them.
    pub(crate) fn abandon(&mut self) {
        for coroutine in &mut self.coroutines {
            if let Some(mut coroutine) = coroutine.take() {
                // SAFETY: what is left on the stack are frames of compiled code and of runtime
                // functions at a suspension point, which hold nothing that needs dropping.
                unsafe { coroutine.force_reset() };
            }
        }
    }

    /// Whether the block wrote something.
    pub(crate) fn has_output(&self) -> bool {
        !self.state.output.borrow().is_empty()
    }

    /// The slot, for another use.
    pub(crate) fn into_slot(mut self) -> Slot {
        self.abandon();
        self.slot
    }

    /// What the block left behind: its fault, and what it wrote.
    pub(crate) fn take_results(&mut self) -> (Option<Fault>, Fifo) {
        let limit = self.state.grid().fifo_bytes();
        (self.state.fault.take(), self.state.output.replace(Fifo::new(limit)))
    }
}

struct Job {
    code: CodePtr,
    context: *const BlockContext,
    thread: *const ThreadContext,
}

/// Takes the lowest set bit.
fn next(mask: &Cell<u32>) -> Option<u32> {
    let value = mask.get();
    (value != 0).then(|| {
        mask.set(value & (value - 1));
        value.trailing_zeros()
    })
}
