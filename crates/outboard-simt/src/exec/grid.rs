//! One launch: its blocks, who works on them, and how it ended.

use crate::exec::block::{BlockRun, BlockState, Progress};
use crate::exec::context::{BlockContext, CodePtr, WORKSPACE_BYTES};
use crate::exec::pool::Core;
use crate::exec::slot::{SHARED_MAX, Slot};
use crate::fault::{Fault, FaultKind};
use crate::launch::{Fifo, Launch};
use crate::limit::Limit;
use crate::memory::GRANULE_SHIFT;
use crate::program::Kernel;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Most threads in a block.
const MAX_THREADS: u32 = 1024;
/// Passes over spinning threads after which the OS thread lets others run.
const SPINS_BEFORE_YIELD: u32 = 4;

/// Memory and stacks that each block of a launch needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Threads are coroutines; otherwise they run one after another.
    pub(crate) coroutines: bool,
    /// Warps take turns at warp operations, where they share memory; that costs what a change of
    /// stacks costs the caches.
    pub(crate) in_turns: bool,
    /// Bytes of stack per coroutine.
    pub(crate) stack_bytes: u64,
    /// Largest machine frame of a function of the program.
    pub(crate) largest_frame: u64,
    /// Bytes of the local window of a thread, and from one thread's to the next.
    pub(crate) local_bytes: u64,
    pub(crate) local_stride: u64,
    /// Bytes of the shared window, whole granules.
    pub(crate) shared_bytes: u64,
}

/// A launch in progress.
pub(crate) struct Grid {
    kernel: Arc<Kernel>,
    core: Arc<Core>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
    grid_id: u64,
    params: u64,
    workspace: u64,
    pub(crate) cooperative: bool,
    /// Threads with lower numbers may run it.
    pub(crate) processors: u32,
    layout: Layout,
    blocks: u64,
    next: AtomicU64,
    aborted: AtomicBool,
    active: AtomicUsize,
    done: Mutex<Done>,
    idle: Condvar,
}

#[derive(Default)]
struct Done {
    fault: Option<(u64, Fault)>,
    output: Vec<(u64, Fifo)>,
}

impl Grid {
    pub(crate) fn new(
        core: &Arc<Core>,
        kernel: &Arc<Kernel>,
        launch: &Launch<'_>,
    ) -> Result<Grid, FaultKind> {
        let layout = check(core, kernel, launch)?;
        let param_bytes =
            (kernel.info.params_size as usize).max(launch.params.len()).max(1).next_multiple_of(16);
        let needed = param_bytes + if launch.cooperative { WORKSPACE_BYTES as usize } else { 0 };
        let params = core
            .memory
            .alloc_internal(needed as u64)
            .map_err(|e| FaultKind::OutOfResources(e.to_string()))?;
        // SAFETY: the range was just allocated, is at least this long, and nobody else knows it.
        unsafe {
            std::ptr::write_bytes(params as *mut u8, 0, needed);
            std::ptr::copy_nonoverlapping(
                launch.params.as_ptr(),
                params as *mut u8,
                launch.params.len(),
            );
        }
        Ok(Grid {
            kernel: kernel.clone(),
            core: core.clone(),
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.dynamic_shared,
            grid_id: launch.grid_id,
            params,
            workspace: if launch.cooperative { params + param_bytes as u64 } else { 0 },
            cooperative: launch.cooperative && layout.coroutines,
            processors: launch.processors,
            layout,
            blocks: launch.grid.iter().map(|&n| u64::from(n)).product(),
            next: AtomicU64::new(0),
            aborted: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            done: Mutex::default(),
            idle: Condvar::new(),
        })
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn kernel_name(&self) -> &str {
        &self.kernel.name
    }

    pub(crate) fn code(&self) -> CodePtr {
        self.kernel.code.entry
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    pub(crate) fn block(&self) -> [u32; 3] {
        self.block
    }

    pub(crate) fn threads_per_block(&self) -> u32 {
        self.block.iter().product()
    }

    pub(crate) fn fifo_bytes(&self) -> u64 {
        self.core.limit(Limit::PrintfFifo)
    }

    /// Whether more than one block is left to claim.
    pub(crate) fn wants_help(&self) -> bool {
        self.blocks > 1
    }

    /// Function and line of a site, which is the index of the function in the program and, in the
    /// lower half, the line; 0 is nowhere.
    pub(crate) fn site(&self, site: u64) -> (String, u32) {
        let line = site as u32;
        let name = self.kernel.program.functions.get((site >> 32) as usize).filter(|_| line != 0);
        (name.cloned().unwrap_or_default(), line)
    }

    /// Index of the block of that linear index.
    pub(crate) fn block_index(&self, index: u64) -> [u32; 3] {
        let [nx, ny, _] = self.grid.map(u64::from);
        [(index % nx) as u32, (index / nx % ny) as u32, (index / (nx * ny)) as u32]
    }

    pub(crate) fn block_context(
        &self,
        slot: &Slot,
        smid: u32,
        state: *const BlockState,
    ) -> BlockContext {
        let threads = self.threads_per_block();
        BlockContext {
            ctaid: [0; 3],
            ntid: self.block,
            nctaid: self.grid,
            nwarp: threads.div_ceil(32),
            smid,
            nsmid: self.core.threads as u32,
            dynamic_shared: self.dynamic_shared,
            total_shared: self.kernel.info.shared_bytes + self.dynamic_shared,
            across_rows: across_rows(self.block).into(),
            dynamic_offset: u64::from(self.kernel.info.shared_bytes),
            grid_id: self.grid_id,
            params: self.params,
            workspace: self.workspace,
            shared_base: slot.shared(),
            shared_size: self.layout.shared_bytes,
            arena_base: self.core.memory.arena_base(),
            table: self.core.memory.table(),
            state,
        }
    }

    /// A place to run blocks of this grid, on the machine's thread `smid`.
    pub(crate) fn block_run(&self, smid: u32) -> Result<BlockRun, FaultKind> {
        let mut slot = self.core.take_slot()?;
        let layout = &self.layout;
        let threads = if layout.coroutines { u64::from(self.threads_per_block()) } else { 1 };
        let stack = if layout.coroutines { layout.stack_bytes } else { 0 };
        match slot.prepare(
            &self.core.memory,
            layout.shared_bytes,
            threads * layout.local_stride,
            threads,
            stack,
        ) {
            Ok(()) => Ok(BlockRun::new(self, slot, smid)),
            Err(kind) => {
                self.core.give_slot(slot);
                Err(kind)
            }
        }
    }

    /// Whether blocks are left that nobody has claimed.
    pub(crate) fn has_work(&self) -> bool {
        !self.aborted.load(Ordering::Relaxed) && self.next.load(Ordering::Relaxed) < self.blocks
    }

    /// Somebody begins to work on the grid; the grid is not over before the matching
    /// [`Grid::leave`].
    pub(crate) fn enter(&self) {
        self.active.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        if self.active.fetch_sub(1, Ordering::SeqCst) == 1 {
            drop(self.done.lock());
            self.idle.notify_all();
        }
    }

    /// Claims and runs some blocks. False when none were left.
    pub(crate) fn work(&self, run: &mut BlockRun) -> bool {
        let Some(range) = self.claim() else { return false };
        if self.layout.coroutines {
            for index in range {
                if !self.run_block(run, index) {
                    break;
                }
            }
        } else {
            let stack = run.slot.main_stack();
            corosensei::on_stack(stack, || {
                for index in range {
                    run.start(self, index);
                    let progress = run.run_plain(self);
                    if !self.finish(run, index, progress) {
                        break;
                    }
                }
            });
        }
        true
    }

    /// Runs a cooperative grid's share: many blocks at once, in turn.
    pub(crate) fn work_cooperative(&self, smid: u32) {
        let share = self.blocks.div_ceil(self.core.threads as u64) as usize;
        let mut runs: Vec<(u64, BlockRun)> = Vec::new();
        let mut wanted = share;
        let mut stalled = 0u32;
        loop {
            while runs.len() < wanted && !self.aborted.load(Ordering::Relaxed) {
                let index = self.next.fetch_add(1, Ordering::Relaxed);
                if index >= self.blocks {
                    break;
                }
                match self.block_run(smid) {
                    Ok(mut run) => {
                        run.start(self, index);
                        runs.push((index, run));
                    }
                    Err(kind) => self.fail(index, kind),
                }
            }
            if runs.is_empty() {
                return;
            }
            let mut finished = false;
            let mut left = Vec::with_capacity(runs.len());
            for (index, mut run) in runs {
                let progress = if self.aborted.load(Ordering::Relaxed) {
                    Progress::Faulted
                } else {
                    run.step()
                };
                if progress == Progress::Spinning {
                    left.push((index, run));
                } else {
                    self.finish(&mut run, index, progress);
                    self.recycle(run);
                    finished = true;
                }
            }
            runs = left;
            stalled = if finished { 0 } else { stalled + 1 };
            if stalled > SPINS_BEFORE_YIELD {
                // Nobody may come to run the rest: take on more than the share.
                wanted = wanted.max(runs.len() + 1);
                std::thread::yield_now();
            }
        }
    }

    /// Gives back what a block run holds.
    pub(crate) fn recycle(&self, run: BlockRun) {
        self.core.give_slot(run.into_slot());
    }

    /// Waits until nobody works on the grid, and tells how it ended. Nobody may enter any more.
    pub(crate) fn wait(&self) -> (Option<Fault>, Vec<Fifo>) {
        let mut done = self.done.lock();
        while self.active.load(Ordering::SeqCst) != 0 {
            self.idle.wait(&mut done);
        }
        let Done { fault, mut output } = std::mem::take(&mut *done);
        output.sort_by_key(|(index, _)| *index);
        (fault.map(|(_, fault)| fault), output.into_iter().map(|(_, fifo)| fifo).collect())
    }

    /// Ends the grid with a fault that has no thread.
    pub(crate) fn fail(&self, index: u64, kind: FaultKind) {
        let fault = Fault {
            kernel: self.kernel.name.clone(),
            block: self.block_index(index),
            ..Fault::from(kind)
        };
        self.aborted.store(true, Ordering::Relaxed);
        self.done.lock().fault.get_or_insert((index, fault));
    }

    fn claim(&self) -> Option<std::ops::Range<u64>> {
        if !self.has_work() {
            return None;
        }
        // Blocks that may wait for each other are claimed singly. Otherwise many at once while many
        // are left, so that small blocks do not cost a visit to the queue each.
        let chunk = if self.layout.coroutines && self.kernel.code.spins {
            1
        } else {
            let left = self.blocks.saturating_sub(self.next.load(Ordering::Relaxed));
            (left / (self.core.threads as u64 * 4)).clamp(1, 256)
        };
        let start = self.next.fetch_add(chunk, Ordering::Relaxed);
        (start < self.blocks).then(|| start..(start + chunk).min(self.blocks))
    }

    fn run_block(&self, run: &mut BlockRun, index: u64) -> bool {
        run.start(self, index);
        let mut spins = 0u32;
        loop {
            let progress = run.step();
            if progress != Progress::Spinning {
                return self.finish(run, index, progress);
            }
            if self.aborted.load(Ordering::Relaxed) {
                run.abandon();
                return self.finish(run, index, Progress::Faulted);
            }
            spins += 1;
            if spins > SPINS_BEFORE_YIELD {
                std::thread::yield_now();
            }
        }
    }

    /// Takes over what a block left. False when the grid is to end.
    fn finish(&self, run: &mut BlockRun, index: u64, progress: Progress) -> bool {
        let faulted = progress == Progress::Faulted;
        if faulted {
            self.aborted.store(true, Ordering::Relaxed);
            run.abandon();
        }
        if faulted || run.has_output() {
            let (fault, output) = run.take_results();
            let mut done = self.done.lock();
            if let Some(fault) = fault
                && done.fault.as_ref().is_none_or(|(first, _)| index < *first)
            {
                done.fault = Some((index, fault));
            }
            done.output.push((index, output));
        }
        !self.aborted.load(Ordering::Relaxed)
    }
}

impl Drop for Grid {
    fn drop(&mut self) {
        self.core.memory.free_internal(self.params);
    }
}

/// Whether warps have threads of more than one row of a block.
fn across_rows([x, y, z]: [u32; 3]) -> bool {
    x % 32 != 0 && y * z > 1
}

/// Checks a launch against what kernel and engine allow.
fn check(core: &Arc<Core>, kernel: &Kernel, launch: &Launch<'_>) -> Result<Layout, FaultKind> {
    let invalid = |what: String| Err(FaultKind::InvalidLaunch(what));
    let (info, code) = (&kernel.info, &kernel.code);
    let volume = |dims: [u32; 3]| dims.map(u128::from).iter().product::<u128>();
    let threads = volume(launch.block);
    if !Arc::ptr_eq(core, &kernel.program.core) {
        return invalid("the kernel belongs to another engine".into());
    }
    if launch.grid.contains(&0) || launch.block.contains(&0) {
        return invalid(format!(
            "grid {:?} or block {:?} has an empty dimension",
            launch.grid, launch.block
        ));
    }
    if volume(launch.grid) > 1 << 62 {
        return invalid(format!("grid {:?} has too many blocks", launch.grid));
    }
    if threads > u128::from(MAX_THREADS.min(info.max_threads)) {
        return invalid(format!(
            "{threads} threads in a block, where the kernel allows {}",
            info.max_threads
        ));
    }
    if let Some(required) = info.required_block
        && required != launch.block
    {
        return invalid(format!(
            "block {:?}, where the kernel requires {required:?}",
            launch.block
        ));
    }
    let shared = u64::from(info.shared_bytes) + u64::from(launch.dynamic_shared);
    if shared > SHARED_MAX {
        return invalid(format!(
            "{shared} bytes of shared memory in a block, of at most {SHARED_MAX}"
        ));
    }
    let deep = if code.recursive { core.limit(Limit::Stack) } else { 0 };
    let local_bytes = (code.local_bytes + deep).next_multiple_of(16);
    Ok(Layout {
        coroutines: code.coroutines
            || code.stepping.needed(shared > 0, across_rows(launch.block)) && threads > 1,
        in_turns: shared > 0 || code.stepping.always,
        stack_bytes: code.stack_bytes(deep),
        largest_frame: code.largest_frame,
        local_bytes,
        local_stride: local_bytes.next_multiple_of(1 << GRANULE_SHIFT),
        shared_bytes: shared.next_multiple_of(1 << GRANULE_SHIFT),
    })
}
