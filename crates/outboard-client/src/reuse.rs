//! Stream-ordered memory that the program has freed, kept for its next allocations of the same size
//! in the same stream.
//!
//! The driver does the same: it may reuse memory freed in a stream for that stream's next
//! allocation at once, and returns memory beyond the pool's release threshold to the system at a
//! wait. Here the server learns neither of the free nor of the allocation after it. Decision 16 has
//! the invariant: apart from a bounded amount of memory, programs cannot tell how much is kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_front::backend::{ContextId, DeviceId, DevicePtr, ObjectId, StreamId};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

/// Bytes by which a pool may hold more than the program's allocations ever were at once.
const SLACK: u64 = 64 << 20;
/// Blocks that are kept of a pool.
const MOST_BLOCKS: usize = 4096;

/// A pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Pool {
    /// The default one of the device with this ordinal.
    Default(DeviceId),
    /// One that the program has made.
    Made(ObjectId),
}

/// A block that is the program's no longer, and free in its stream's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) ctx: ContextId,
    pub(crate) stream: StreamId,
    pub(crate) address: DevicePtr,
    bytes: u64,
}

/// The kept memory of all pools.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    state: Mutex<ReuseState>,
    /// Whether a wait gives anything back.
    due: AtomicBool,
    /// Bytes that the driver returns to the system at the next wait, which has not happened yet.
    owed: Mutex<Vec<Owed>>,
    is_owed: AtomicBool,
}

/// What the driver gives back at a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    /// Memory that has been freed in a stream's order, usable once that stream has reached the
    /// free.
    Freed(ContextId, StreamId),
    /// What a pool no longer holds on to.
    Lowered,
}

#[derive(Debug, Default)]
struct ReuseState {
    pools: FxHashMap<Pool, PoolMemory>,
    /// Default pools under the names that the program's handles have.
    names: FxHashMap<ObjectId, DeviceId>,
    devices: FxHashMap<ContextId, DeviceId>,
    /// The program's allocations.
    live: FxHashMap<DevicePtr, Live>,
    time: u64,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    pool: Pool,
    ctx: ContextId,
    bytes: u64,
}

#[derive(Debug, Default)]
struct PoolMemory {
    threshold: u64,
    live: u64,
    held: u64,
    /// The most that was live, and live or kept, at once.
    most_live: u64,
    most_held: u64,
    /// Blocks by the time at which they were freed.
    blocks: BTreeMap<u64, Block>,
    /// Those times, by context, stream and size.
    fitting: FxHashMap<(ContextId, StreamId, u64), Vec<u64>>,
}

impl PoolMemory {
    fn note(&mut self) {
        self.most_live = self.most_live.max(self.live);
        self.most_held = self.most_held.max(self.live + self.held);
    }

    fn keep(&mut self, time: u64, block: Block) {
        self.held += block.bytes;
        self.blocks.insert(time, block);
        self.fitting.entry((block.ctx, block.stream, block.bytes)).or_default().push(time);
    }

    fn take(&mut self, time: u64) -> Option<Block> {
        let block = self.blocks.remove(&time)?;
        let key = (block.ctx, block.stream, block.bytes);
        if let Some(times) = self.fitting.get_mut(&key) {
            times.retain(|other| *other != time);
            if times.is_empty() {
                self.fitting.remove(&key);
            }
        }
        self.held -= block.bytes;
        Some(block)
    }

    /// Gives back the oldest blocks until at most `bytes` are kept.
    fn shrink_to(&mut self, bytes: u64, give: &mut dyn FnMut(&Block)) {
        while self.held > bytes
            && let Some((time, _)) = self.blocks.first_key_value()
        {
            let time = *time;
            if let Some(block) = self.take(time) {
                give(&block);
            }
        }
    }

    fn give_where(&mut self, which: impl Fn(&Block) -> bool, give: &mut dyn FnMut(&Block)) {
        let times: Vec<u64> =
            self.blocks.iter().filter(|(_, block)| which(block)).map(|(time, _)| *time).collect();
        for time in times {
            if let Some(block) = self.take(time) {
                give(&block);
            }
        }
    }

    /// How much may be kept over a wait: what the pool would hold on to itself.
    fn lasting(&self) -> u64 {
        self.threshold.saturating_sub(self.live)
    }
}

impl Reuse {
    fn state(&self) -> MutexGuard<'_, ReuseState> {
        self.state.lock()
    }

    fn done(&self, state: &ReuseState) {
        let due = state.pools.values().any(|kept| kept.held > kept.lasting());
        self.due.store(due, Ordering::Release);
    }

    /// A context of a device has been opened.
    pub(crate) fn context_opened(&self, ctx: ContextId, device: DeviceId) {
        self.state().devices.insert(ctx, device);
    }

    /// The default pool of a context's device.
    pub(crate) fn default_of(&self, ctx: ContextId) -> Option<Pool> {
        self.state().devices.get(&ctx).copied().map(Pool::Default)
    }

    /// A handle of the program's is the default pool of a device.
    pub(crate) fn name_default(&self, name: ObjectId, device: DeviceId) {
        self.state().names.insert(name, device);
    }

    /// The pool that a handle is.
    pub(crate) fn named(&self, name: ObjectId) -> Pool {
        self.state().names.get(&name).copied().map_or(Pool::Made(name), Pool::Default)
    }

    /// A block of exactly this size that was freed in this stream, now the program's again.
    pub(crate) fn take(
        &self,
        pool: Pool,
        ctx: ContextId,
        stream: StreamId,
        bytes: u64,
    ) -> Option<DevicePtr> {
        let mut state = self.state();
        let kept = state.pools.get_mut(&pool)?;
        let time = *kept.fitting.get(&(ctx, stream, bytes))?.last()?;
        let block = kept.take(time)?;
        kept.live += bytes;
        kept.note();
        state.live.insert(block.address, Live { pool, ctx, bytes });
        self.done(&state);
        Some(block.address)
    }

    /// Before the server allocates: gives back so much that the pool holds hardly more than the
    /// program ever had of it.
    pub(crate) fn make_room(&self, pool: Pool, bytes: u64, mut give: impl FnMut(&Block)) {
        let mut state = self.state();
        let Some(kept) = state.pools.get_mut(&pool) else { return };
        let wanted = kept.live.saturating_add(bytes);
        let most = kept.most_live.max(wanted).saturating_add(SLACK);
        kept.shrink_to(most - wanted, &mut give);
        self.done(&state);
    }

    /// The server has allocated a block.
    pub(crate) fn allocated(&self, pool: Pool, ctx: ContextId, address: DevicePtr, bytes: u64) {
        let mut state = self.state();
        let kept = state.pools.entry(pool).or_default();
        kept.live += bytes;
        kept.note();
        state.live.insert(address, Live { pool, ctx, bytes });
        self.done(&state);
    }

    /// The program frees a block in a stream's order. Whether it is kept; if not, the server must
    /// free it.
    pub(crate) fn keep(&self, ctx: ContextId, stream: StreamId, address: DevicePtr) -> bool {
        let mut state = self.state();
        let Some(live) = state.live.remove(&address) else { return false };
        state.time += 1;
        let time = state.time;
        let Some(kept) = state.pools.get_mut(&live.pool) else { return false };
        kept.live -= live.bytes;
        let keeps = kept.blocks.len() < MOST_BLOCKS;
        if keeps {
            kept.keep(time, Block { ctx, stream, address, bytes: live.bytes });
        }
        self.done(&state);
        keeps
    }

    /// An allocation is no longer one that may be kept: it is freed in another way, or other
    /// processes have it.
    pub(crate) fn release(&self, address: DevicePtr) {
        let mut state = self.state();
        let Some(live) = state.live.remove(&address) else { return };
        if let Some(kept) = state.pools.get_mut(&live.pool) {
            kept.live -= live.bytes;
        }
        self.done(&state);
    }

    /// Before a wait: gives back what the pools would not hold on to.
    #[inline]
    pub(crate) fn before_wait(&self, give: impl FnMut(&Block)) {
        if self.due.load(Ordering::Acquire) {
            self.give_due(give);
        }
    }

    #[cold]
    fn give_due(&self, mut give: impl FnMut(&Block)) {
        let mut state = self.state();
        for kept in state.pools.values_mut() {
            kept.shrink_to(kept.lasting(), &mut give);
        }
        self.done(&state);
    }

    /// The server is about to be told to free something in a stream's order.
    pub(crate) fn frees(&self, ctx: ContextId, stream: StreamId) {
        self.owe(Owed::Freed(ctx, stream));
    }

    fn owe(&self, what: Owed) {
        let mut owed = self.owed();
        if !owed.contains(&what) {
            owed.push(what);
        }
        self.is_owed.store(true, Ordering::Release);
    }

    /// Whether a wait does more than wait.
    #[inline]
    pub(crate) fn needs_wait(&self) -> bool {
        self.is_owed.load(Ordering::Acquire) || self.due.load(Ordering::Acquire)
    }

    /// The driver has made a wait. It was behind what was freed in the streams that have nothing
    /// left to do.
    #[inline]
    pub(crate) fn waited(&self, is_idle: impl Fn(ContextId, StreamId) -> bool) {
        if self.is_owed.load(Ordering::Acquire) {
            self.settle(|owed| match owed {
                Owed::Freed(ctx, stream) => is_idle(ctx, stream),
                Owed::Lowered => true,
            });
        }
    }

    fn settle(&self, is_settled: impl Fn(Owed) -> bool) {
        let mut owed = self.owed();
        owed.retain(|owed| !is_settled(*owed));
        self.is_owed.store(!owed.is_empty(), Ordering::Release);
    }

    fn owed(&self) -> MutexGuard<'_, Vec<Owed>> {
        self.owed.lock()
    }

    /// Sets how much a pool holds on to.
    pub(crate) fn set_threshold(&self, pool: Pool, bytes: u64) {
        let mut state = self.state();
        let before = std::mem::replace(&mut state.pools.entry(pool).or_default().threshold, bytes);
        self.done(&state);
        if bytes < before {
            self.owe(Owed::Lowered);
        }
    }

    /// Gives back all of a pool.
    pub(crate) fn give_pool(&self, pool: Pool, mut give: impl FnMut(&Block)) {
        let mut state = self.state();
        if let Some(kept) = state.pools.get_mut(&pool) {
            kept.shrink_to(0, &mut give);
        }
        self.done(&state);
    }

    /// Gives back everything; whether there was anything.
    pub(crate) fn give_all(&self, mut give: impl FnMut(&Block)) -> bool {
        let mut any = false;
        let mut state = self.state();
        for kept in state.pools.values_mut() {
            any |= kept.held > 0;
            kept.shrink_to(0, &mut give);
        }
        self.done(&state);
        any
    }

    /// Gives back the memory kept for a stream that is about to be destroyed.
    pub(crate) fn give_stream(
        &self,
        ctx: ContextId,
        stream: StreamId,
        mut give: impl FnMut(&Block),
    ) {
        let mut state = self.state();
        for kept in state.pools.values_mut() {
            kept.give_where(|block| (block.ctx, block.stream) == (ctx, stream), &mut give);
        }
        self.done(&state);
    }

    /// Gives back what is kept for the streams of a context, and forgets its allocations: it is
    /// about to end.
    pub(crate) fn end_context(&self, ctx: ContextId, mut give: impl FnMut(&Block)) {
        let mut state = self.state();
        let ReuseState { pools, live, devices, .. } = &mut *state;
        for kept in pools.values_mut() {
            kept.give_where(|block| block.ctx == ctx, &mut give);
        }
        for (_, gone) in live.extract_if(|_, live| live.ctx == ctx) {
            if let Some(kept) = pools.get_mut(&gone.pool) {
                kept.live -= gone.bytes;
            }
        }
        devices.remove(&ctx);
        self.done(&state);
        drop(state);
        self.settle(|owed| matches!(owed, Owed::Freed(of, _) if of == ctx));
    }

    /// Gives back all of a pool, and keeps none of it any more.
    pub(crate) fn end_pool(&self, pool: Pool, give: impl FnMut(&Block)) {
        self.give_pool(pool, give);
        let mut state = self.state();
        state.live.retain(|_, live| live.pool != pool);
        state.pools.remove(&pool);
        self.done(&state);
    }

    /// By how much the most that the pool had in use exceeds the most that the program did, as far
    /// as known.
    pub(crate) fn excess(&self, pool: Pool) -> u64 {
        self.state().pools.get(&pool).map_or(0, |kept| kept.most_held - kept.most_live)
    }

    /// Forgets how much there was at most.
    pub(crate) fn reset_most(&self, pool: Pool) {
        if let Some(kept) = self.state().pools.get_mut(&pool) {
            (kept.most_live, kept.most_held) = (kept.live, kept.live + kept.held);
        }
    }
}

#[cfg(test)]
mod tests;
