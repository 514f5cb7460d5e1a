//! Device memory that counts for the session's limit: that of the account, and that of pools.

use outboard_abi::{CUgraphMem_attribute_enum as GraphMemory, CUresult};
use outboard_driver::call;
use outboard_wire::{ContextId, DevicePtr};

use super::answer::Outcome;
use super::bounds::Kind;
use super::budget::{Charge, Looker, Pinned, taken};
use super::io::Registry;
use super::mapped;
use crate::worker::Worker;

/// How long a request that does not fit waits for work that may give memory back.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);

/// How long other clients have to give back what they only keep, mostly a connection's way there
/// and back: pauses between tries, in milliseconds.
const GIVING: [u64; 4] = [5, 20, 75, 200];

/// Bytes for output or for `malloc` in kernels that a context has without asking.
const USUAL_BUFFER: u64 = 16 << 20;
/// Bytes of stack of a thread that it has so.
const USUAL_STACK: u64 = 1 << 10;

/// Memory is granted in steps.
const STEP: u64 = 64 << 20;

impl Worker {
    /// The ordinal of the current context's device.
    pub(super) fn device_here(&mut self) -> Result<u32, CUresult> {
        Ok(self.enter()?.device as u32)
    }

    /// What graphs hold of a device.
    fn held_by_graphs(&self, device: u32) -> u64 {
        let mut bytes = 0u64;
        if self.graphs.has_allocated() {
            let attribute = GraphMemory::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT;
            let _ = call!(
                self.table,
                cuDeviceGetGraphMemAttribute(device as i32, attribute, (&raw mut bytes).cast())
            );
        }
        bytes
    }

    /// Memory that the account does not contain.
    fn held_elsewhere(&self, device: u32) -> u64 {
        let pools = self.memory.pools.hold(self.table, device);
        let bytes = pools.saturating_add(self.held_by_graphs(device));
        self.memory.budget.tell_elsewhere(device, bytes);
        bytes
    }

    /// What the session holds of a device.
    pub(super) fn held(&self, device: u32) -> u64 {
        self.memory.budget.held(device).saturating_add(self.held_elsewhere(device))
    }

    /// Whether what the session holds of a device, and so much more, is within its limit.
    fn fits(&self, device: u32, more: u64) -> bool {
        // Others of its lease are told of it before they are asked.
        let held = self.held(device).checked_add(more);
        let limit = self.memory.budget.limit(device).unwrap_or(u64::MAX);
        held.is_some_and(|held| held <= limit)
    }

    /// Writes the session's memory on the board, if it has changed.
    pub(super) fn show_held(&self, board: &outboard_control::board::Board) {
        if self.memory.budget.has_changed(Looker::Board) {
            for device in self.offered.ordinals() {
                let held = self.held(device);
                board.show_held(device, held);
                outboard_control::meter::page().set_held(device as usize, held);
            }
        }
    }

    /// Has pools and graphs give back what they only keep.
    fn trim(&mut self, device: u32) {
        self.memory.pools.trim(self.table, device);
        if self.graphs.has_allocated() {
            let _ = call!(self.table, cuDeviceGraphMemTrim(device as i32));
        }
    }

    /// Waits for the current context's work, for a bounded time: the dispatcher does nothing else
    /// meanwhile. Whether nothing is left to do.
    fn settle(&mut self) -> bool {
        let until = std::time::Instant::now() + PATIENCE;
        while std::time::Instant::now() < until {
            if self.streams.waits.is_quiet(self.table, self.contexts.here()) {
                // Ends at once, and has the driver look after what was freed.
                let _ = call!(self.table, cuCtxSynchronize());
                return true;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        false
    }

    /// Waits for memory that is on its way back to the driver, for a bounded time.
    fn wait_for_what_returns(&mut self) {
        // Some of it waits for what only the dispatcher looks at.
        self.stop_looking();
        self.memory.returning.wait(PATIENCE);
    }

    /// Gives back pages of the client that it has closed, once the device is done with them.
    /// Whether there were any.
    fn give_closed_pages_back(&mut self) -> bool {
        let given = self.memory.mapped.has_unused()
            && self.contexts.here() != ContextId::NONE
            && self.settle();
        if given {
            mapped::unmap(self.table, &self.memory.mapped.take_unused());
        }
        given
    }

    /// Does `attempt`, again with what can be given back given back if it fails for want of memory.
    pub(super) fn with_room<T>(
        &mut self,
        device: u32,
        mut attempt: impl FnMut(&mut Worker) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        const FULL: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        // Asked before the attempt, which lacks what comes back during it.
        let returns = self.memory.returning.is_any();
        let mut outcome = attempt(self);
        if matches!(outcome, Err(FULL)) && self.chains.forget_all(self.table) {
            outcome = attempt(self);
        }
        if matches!(outcome, Err(FULL)) && returns {
            self.wait_for_what_returns();
            outcome = attempt(self);
        }
        if matches!(outcome, Err(FULL)) && self.give_closed_pages_back() {
            outcome = attempt(self);
        }
        if !matches!(outcome, Err(FULL))
            || (self.memory.budget.size(device).is_none() && !self.lends())
            || !(self.memory.pools.are_used() || self.graphs.has_allocated())
        {
            return outcome;
        }
        // What is held is asked before each attempt, so that memory that comes back during one is
        // noticed after it.
        let mut held = u64::MAX;
        for settle in [false, true] {
            if settle && (held == 0 || self.contexts.here() == ContextId::NONE) {
                break;
            }
            if settle {
                self.settle();
            }
            self.trim(device);
            let left = self.held_elsewhere(device);
            // Without anything given back, there is no use in asking again.
            if left >= held {
                break;
            }
            held = left;
            outcome = attempt(self);
            if !matches!(outcome, Err(FULL)) {
                break;
            }
        }
        outcome
    }

    /// Whether sessions lend each other their memory.
    fn lends(&self) -> bool {
        self.client.registry().is_some_and(Registry::lends)
    }

    /// Asks for room for so many more bytes of a device, if memory is lent. `failed`: the driver
    /// has just refused them.
    fn ask_for_room(&mut self, device: u32, more: u64, failed: bool) -> Outcome {
        let full = Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let registry = self.client.registry();
        let Some((registry, granted)) =
            registry.and_then(|registry| Some((registry, registry.granted(device)?)))
        else {
            return if failed { full } else { Ok(()) };
        };
        let wanted = self.held(device).saturating_add(more);
        if !failed && wanted <= granted {
            return Ok(());
        }
        let bytes = wanted.checked_next_multiple_of(STEP).unwrap_or(u64::MAX).max(granted);
        if registry.room(device, bytes, failed).unwrap_or(false) { Ok(()) } else { full }
    }

    /// Tells the supervisor of memory that is not needed any more.
    pub(super) fn give_back_grants(&mut self) {
        let Some(registry) = self
            .client
            .registry()
            .filter(|registry| registry.lends() && self.memory.budget.has_changed(Looker::Grants))
        else {
            return;
        };
        for (device, granted) in registry.all_granted() {
            let held = self.held(device).checked_next_multiple_of(STEP).unwrap_or(u64::MAX);
            if held < granted {
                registry.holds(device, held);
            }
        }
    }

    /// Allocates from the driver; if that has no room, others may lend it.
    fn allocate<T>(
        &mut self,
        device: u32,
        bytes: u64,
        allocate: &mut impl FnMut(&mut Worker) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        self.ask_for_room(device, bytes, false)?;
        match allocate(self) {
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) if self.lends() => {
                self.ask_for_room(device, bytes, true)?;
                allocate(self)
            }
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                self.allocate_once_others_have_given(device, allocate)
            }
            outcome => outcome,
        }
    }

    /// Allocates from a driver that has no room, with what other sessions only keep given back, if
    /// there are any.
    fn allocate_once_others_have_given<T>(
        &mut self,
        device: u32,
        allocate: &mut impl FnMut(&mut Worker) -> Result<T, CUresult>,
    ) -> Result<T, CUresult> {
        let mut outcome = Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let registry = self.client.registry();
        if !registry.is_some_and(|registry| registry.scarce(device).unwrap_or(false)) {
            return outcome;
        }
        for pause in GIVING {
            std::thread::sleep(std::time::Duration::from_millis(pause));
            outcome = allocate(self);
            if !matches!(outcome, Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) {
                break;
            }
        }
        outcome
    }

    /// Memory of a device, of which `bytes` are asked for: the driver's, if the session may have
    /// it.
    pub(super) fn hold<T>(
        &mut self,
        device: u32,
        bytes: u64,
        mut allocate: impl FnMut(&mut Worker) -> Result<T, CUresult>,
    ) -> Result<(T, Charge), CUresult> {
        Kind::Allocation.room(self.memory.allocations.len())?;
        let bytes = taken(bytes);
        self.with_room(device, |worker| {
            let others = if worker.memory.budget.size(device).is_some() {
                worker.held_elsewhere(device)
            } else {
                0
            };
            // Asked for before it counts, so that it is not counted twice.
            worker.ask_for_room(device, bytes, false)?;
            let charge = worker.memory.budget.charge(device, bytes, others)?;
            Ok((worker.allocate(device, 0, &mut allocate)?, charge))
        })
    }

    /// Page-locked memory of this machine. It counts with the session's memory of the present
    /// device: on the software device it is the same memory, and beside a GPU the scarcer one.
    pub(super) fn hold_pinned(&mut self, bytes: u64) -> Result<Pinned, CUresult> {
        let device = self.device_here()?;
        let ((), charge) = self.hold(device, bytes, |_| Ok(()))?;
        self.memory.budget.pin(bytes, charge)
    }

    /// Memory out of a pool of a device: `allocate` gives its address, which `undo` frees again.
    pub(super) fn hold_pooled(
        &mut self,
        device: u32,
        bytes: u64,
        mut allocate: impl FnMut(&mut Worker) -> Result<DevicePtr, CUresult>,
        mut undo: impl FnMut(&mut Worker, DevicePtr),
    ) -> Result<DevicePtr, CUresult> {
        self.memory.budget.changed();
        Kind::Allocation.room(self.memory.allocations.len())?;
        let limit = self.memory.budget.size(device);
        let is_bounded = limit.is_some() || self.lends();
        if limit.is_some_and(|limit| bytes > limit) {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.with_room(device, |worker| {
            // Only what has been allocated tells how much the pool took for it.
            let address = worker.allocate(device, bytes, &mut allocate)?;
            if !is_bounded || worker.fits(device, 0) {
                return Ok(address);
            }
            undo(worker, address);
            Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        })
    }

    /// Before a graph is launched that allocates so much on a device: whether that is the session's
    /// to have.
    pub(super) fn check_graph(&mut self, device: u32, bytes: u64) -> Outcome {
        if self.memory.budget.size(device).is_none() {
            return Ok(());
        }
        self.with_room(device, |worker| {
            let mut used = 0u64;
            let attribute = GraphMemory::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
            let _ = call!(
                worker.table,
                cuDeviceGetGraphMemAttribute(device as i32, attribute, (&raw mut used).cast())
            );
            // Memory that earlier launches left behind is used again.
            let more = bytes.saturating_sub(worker.held_by_graphs(device).saturating_sub(used));
            if worker.fits(device, more) { Ok(()) } else { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) }
        })
    }

    /// What a device sets aside for a limit of a context, beyond what every context has.
    pub(super) fn limit_bytes(&self, device: u32, limit: u32, value: u64) -> u64 {
        use outboard_abi::CUlimit_enum as L;
        match L(limit) {
            L::CU_LIMIT_PRINTF_FIFO_SIZE | L::CU_LIMIT_MALLOC_HEAP_SIZE => {
                value.saturating_sub(USUAL_BUFFER)
            }
            L::CU_LIMIT_STACK_SIZE => self.stack_bytes(device, value),
            _ => 0,
        }
    }

    /// Memory that a device reserves if each thread has that much local memory, beyond that of
    /// every context.
    pub(super) fn stack_bytes(&self, device: u32, each: u64) -> u64 {
        use outboard_abi::CUdevice_attribute as A;
        let attribute = |attribute: A| self.offered.attribute(device, attribute).max(0) as u64;
        let threads = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            * attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
        each.saturating_sub(USUAL_STACK).saturating_mul(threads)
    }

    /// Free and total memory of the present device, as the client sees it.
    pub(super) fn memory_seen(&mut self) -> Result<(u64, u64), CUresult> {
        let device = self.device_here()?;
        let (mut free, mut total) = (0usize, 0usize);
        call!(self.table, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        let (free, total) = (free as u64, total as u64);
        let budget = &self.memory.budget;
        Ok(match budget.limit(device).zip(budget.size(device)) {
            Some((limit, size)) => {
                (free.min(limit.saturating_sub(self.held(device))), total.min(size))
            }
            None => (free, total),
        })
    }
}
