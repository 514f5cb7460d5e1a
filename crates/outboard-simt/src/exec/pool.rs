//! The OS threads that run blocks, and what all launches of an engine share.
//!
//! The thread that launches works on its own grid, so a grid of one block needs no hand-off. The
//! pool's threads join grids that have blocks left, in turn, so launches from several threads share
//! them.

use crate::exec::block::BlockRun;
use crate::exec::grid::Grid;
use crate::exec::slot::Slot;
use crate::fault::FaultKind;
use crate::limit::Limit;
use crate::memory::Memory;
use crate::rt::heap::Heap;
use crate::texture::{Objects, Surface, Texture};
use outboard_threads::Joined;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Slots that stay ready for use.
const SPARE_SLOTS_PER_THREAD: usize = 2;

/// What launches share.
pub(crate) struct Core {
    pub(crate) memory: Memory,
    pub(crate) threads: usize,
    pub(crate) heap: Heap,
    pub(crate) textures: Objects<Texture>,
    pub(crate) surfaces: Objects<Surface>,
    limits: [AtomicU64; 3],
    slots: Mutex<Vec<Slot>>,
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    grids: Vec<Arc<Grid>>,
    turn: usize,
    shutdown: bool,
}

impl Core {
    pub(crate) fn new(memory: Memory, threads: usize) -> Core {
        Core {
            memory,
            threads,
            heap: Heap::default(),
            textures: Objects::default(),
            surfaces: Objects::default(),
            limits: [AtomicU64::new(64 << 10), AtomicU64::new(1 << 20), AtomicU64::new(8 << 20)],
            slots: Mutex::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    pub(crate) fn limit(&self, limit: Limit) -> u64 {
        self.limits[limit as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_limit(&self, limit: Limit, value: u64) {
        self.limits[limit as usize].store(value, Ordering::Relaxed);
    }

    pub(crate) fn take_slot(&self) -> Result<Slot, FaultKind> {
        match self.slots.lock().pop() {
            Some(slot) => Ok(slot),
            None => Slot::new(&self.memory),
        }
    }

    pub(crate) fn give_slot(&self, slot: Slot) {
        let mut slots = self.slots.lock();
        if slots.len() < self.threads * SPARE_SLOTS_PER_THREAD {
            slots.push(slot);
        } else {
            drop(slots);
            slot.release(&self.memory);
        }
    }

    /// Runs a grid to its end, on this thread and those of the pool that are free.
    pub(crate) fn run(&self, grid: &Arc<Grid>) {
        let help = grid.wants_help() && self.threads > 1 && grid.processors > 1;
        grid.enter();
        if help {
            self.queue.lock().grids.push(grid.clone());
            self.wake.notify_all();
        }
        self.join(grid, 0);
        if help {
            self.queue.lock().grids.retain(|other| !Arc::ptr_eq(other, grid));
        }
        grid.leave();
    }

    /// Works on a grid until nothing of it is left to claim.
    fn join(&self, grid: &Grid, smid: u32) {
        if grid.cooperative {
            return grid.work_cooperative(smid);
        }
        match grid.block_run(smid) {
            Ok(mut run) => {
                while grid.work(&mut run) {}
                grid.recycle(run);
            }
            Err(kind) => grid.fail(0, kind),
        }
    }

    fn worker(&self, smid: u32) {
        let mut current: Option<(Arc<Grid>, BlockRun)> = None;
        loop {
            let Some(grid) = self.next_grid(smid, &mut current) else { return };
            if grid.cooperative {
                grid.work_cooperative(smid);
            } else {
                if current.as_ref().is_none_or(|(held, _)| !Arc::ptr_eq(held, &grid)) {
                    put_down(&mut current);
                    // A worker that cannot get the resources leaves the grid to the thread that
                    // launched it.
                    current = grid.block_run(smid).ok().map(|run| (grid.clone(), run));
                }
                match &mut current {
                    Some((_, run)) => _ = grid.work(run),
                    None => std::thread::yield_now(),
                }
            }
            grid.leave();
        }
    }

    /// The next grid to work on, entered; waits for one. `None` when the engine goes.
    fn next_grid(
        &self,
        smid: u32,
        current: &mut Option<(Arc<Grid>, BlockRun)>,
    ) -> Option<Arc<Grid>> {
        let mut queue = self.queue.lock();
        loop {
            if queue.shutdown {
                drop(queue);
                put_down(current);
                return None;
            }
            let count = queue.grids.len();
            let is_for_me = |grid: &Grid| smid < grid.processors && grid.has_work();
            let found =
                (0..count).map(|i| (queue.turn + i) % count).find(|&i| is_for_me(&queue.grids[i]));
            if let Some(index) = found {
                queue.turn = index + 1;
                let grid = queue.grids[index].clone();
                // Under the lock: the launcher takes the grid off the queue first and then waits
                // for those inside.
                grid.enter();
                return Some(grid);
            }
            if current.is_some() {
                parking_lot::MutexGuard::unlocked(&mut queue, || put_down(current));
                continue;
            }
            self.wake.wait(&mut queue);
        }
    }
}

fn put_down(current: &mut Option<(Arc<Grid>, BlockRun)>) {
    if let Some((grid, run)) = current.take() {
        grid.recycle(run);
    }
}

/// The pool's threads; they end when this is dropped.
pub(crate) struct Pool {
    core: Arc<Core>,
    threads: Vec<Joined>,
}

impl Pool {
    /// Starts one thread fewer than the engine has: the launching thread is one of them.
    pub(crate) fn start(core: &Arc<Core>) -> Result<Pool, std::io::Error> {
        let mut pool = Pool { core: core.clone(), threads: Vec::new() };
        for smid in 1..core.threads as u32 {
            let core = core.clone();
            let name = format!("outboard-simt-{smid}");
            pool.threads.push(outboard_threads::start_joined(&name, move || core.worker(smid))?);
        }
        Ok(pool)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.core.queue.lock().shutdown = true;
        self.core.wake.notify_all();
        // The last handle on the engine may go on one of these threads, which does not wait for
        // itself.
        self.threads.drain(..).for_each(|thread| thread.join());
    }
}
