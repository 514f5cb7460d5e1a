//! Device memory at addresses that this process chooses: what `cuMemAlloc` gives.
//!
//! In a part of the session's window the server's driver places nothing: the *arena*. This module
//! assigns its addresses. Device memory lies there in *blocks*, each of which the server maps once
//! and unmaps once; small allocations share a block. A block whose memory has been freed may stay
//! mapped, as *credit*: the next allocation of its size uses it without a message to the server.
//! Credit counts against the session's limit, so it is bounded, and the server has it given back
//! when another session needs memory.
//!
//! A context has blocks of its own: they end with it.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outboard_front::backend::{ContextId, DeviceId, DevicePtr};
use outboard_ranges::FreeRanges;
use outboard_wire::handshake::arena::Arena as Terms;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

/// Allocations begin at multiples of this, as natively.
const ALIGN: u64 = 512;
/// The gap between allocations that the server is told of, so that it can tell the end of one from
/// the start of the next.
const GAP: u64 = 512;
/// Bytes that are kept of a context at most.
const MOST_KEPT: u64 = 128 << 20;
/// Once nothing has been allocated or freed for so long, nothing is kept.
const IDLE: Duration = Duration::from_millis(500);

/// The arena of a session.
#[derive(Debug)]
pub(crate) struct Arena {
    terms: Terms,
    /// Whether the server wants back what is kept.
    wanted: Arc<AtomicBool>,
    any_late: AtomicBool,
    /// Somebody looks now and then how long it has been kept.
    watched: AtomicBool,
    state: Mutex<ArenaState>,
}

/// Memory that the server maps as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) ctx: ContextId,
    pub(crate) address: DevicePtr,
    pub(crate) bytes: u64,
}

/// What to tell the server, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A part of a block of this context is allocated.
    Opened(ContextId, DevicePtr, u64),
    /// It is free.
    Closed(ContextId, DevicePtr, u64),
    /// A block is not needed any more.
    Unmapped(Block),
}

/// What came of asking for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Here it is.
    Memory(DevicePtr),
    /// The server must map this first.
    Block(Block),
    /// There are no addresses left that would do.
    Nothing,
}

#[derive(Debug)]
struct ArenaState {
    /// Addresses at which nothing is mapped or reserved.
    addresses: FreeRanges,
    blocks: BTreeMap<DevicePtr, Held>,
    /// Bytes of allocations, as asked for.
    live: FxHashMap<DevicePtr, u64>,
    contexts: FxHashMap<ContextId, Owner>,
    /// Ranges that the program has reserved.
    reserved: FxHashMap<DevicePtr, u64>,
    /// Allocations that are free once work that is queued is done, with the time at which each was
    /// noted.
    late: Vec<(u64, DevicePtr)>,
    /// Counts what is allocated, freed, and noted to be freed.
    time: u64,
    /// Such a count, and since when it has been the same.
    seen: Option<(u64, Instant)>,
}

impl ArenaState {
    fn is_any_kept(&self) -> bool {
        self.contexts.values().any(|owner| owner.bytes_kept > 0)
    }
}

/// What came of freeing memory.
#[must_use]
pub(crate) struct Freed {
    /// Something is kept, and [`Arena::look`] is not going to be called by itself.
    pub(crate) is_unwatched: bool,
}

/// A block that is mapped.
#[derive(Debug)]
struct Held {
    ctx: ContextId,
    bytes: u64,
    /// Allocations in it.
    live: u32,
    /// Small allocations share it.
    shared: bool,
    /// Other sessions may have it: it is not used for anything else any more.
    exported: bool,
}

/// A context, and what is free of its blocks.
#[derive(Debug)]
struct Owner {
    device: DeviceId,
    /// Of shared blocks.
    parts: FreeRanges,
    /// A shared block in which nothing is allocated, kept as it is for the next small allocation.
    spare: Option<(DevicePtr, u64)>,
    /// Blocks that are kept, by the time at which they became free.
    kept: BTreeMap<u64, (DevicePtr, u64)>,
    /// Those times, by size.
    fitting: FxHashMap<u64, Vec<u64>>,
    bytes_kept: u64,
}

impl Owner {
    fn keep(&mut self, time: u64, address: DevicePtr, bytes: u64) {
        self.bytes_kept += bytes;
        self.kept.insert(time, (address, bytes));
        self.fitting.entry(bytes).or_default().push(time);
    }

    /// Leaves a shared block as it is, if there is no other such.
    fn spare(&mut self, address: DevicePtr, bytes: u64) -> bool {
        let first = self.spare.is_none();
        if first {
            self.spare = Some((address, bytes));
            self.bytes_kept += bytes;
        }
        first
    }

    /// Something is allocated in a block, perhaps in the one that was left as it is.
    fn uses(&mut self, address: DevicePtr) {
        if let Some((_, bytes)) = self.spare.take_if(|(spare, _)| *spare == address) {
            self.bytes_kept -= bytes;
        }
    }

    /// The block that was left as it is, to be used whole.
    fn take_spare(&mut self, wanted: u64) -> Option<DevicePtr> {
        let (address, bytes) = self.spare.take_if(|(_, bytes)| *bytes == wanted)?;
        self.bytes_kept -= bytes;
        self.parts.forget(address.0, bytes);
        Some(address)
    }

    /// The block of this size that was freed last.
    fn take(&mut self, bytes: u64) -> Option<DevicePtr> {
        let Some(time) = self.fitting.get_mut(&bytes).and_then(Vec::pop) else {
            return self.take_spare(bytes);
        };
        let (address, bytes) = self.kept.remove(&time)?;
        self.bytes_kept -= bytes;
        Some(address)
    }

    /// The block that was freed first, or the one that was left as it is.
    fn take_oldest(&mut self) -> Option<DevicePtr> {
        let Some((time, (address, bytes))) = self.kept.pop_first() else {
            return self.take_spare(self.spare?.1);
        };
        if let Some(times) = self.fitting.get_mut(&bytes) {
            times.retain(|other| *other != time);
        }
        self.bytes_kept -= bytes;
        Some(address)
    }
}

impl Arena {
    /// An arena in which nothing is. Others say by `wanted` that the server wants back what is
    /// kept.
    pub(crate) fn new(terms: Terms, wanted: Arc<AtomicBool>) -> Arena {
        let mut addresses = FreeRanges::new();
        addresses.give(terms.address, terms.bytes);
        let (blocks, live, contexts, reserved, late) = Default::default();
        let state =
            ArenaState { addresses, blocks, live, contexts, reserved, late, time: 0, seen: None };
        Arena {
            terms,
            wanted,
            any_late: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock()
    }

    /// Bytes that an allocation takes of a shared block; `None` if it has blocks of its own.
    fn part(&self, bytes: u64) -> Option<u64> {
        let gap = if self.terms.told { GAP } else { 0 };
        (bytes < self.terms.granule / 2).then(|| (bytes + gap).next_multiple_of(ALIGN))
    }

    /// Addresses that a block takes.
    fn span(&self, bytes: u64) -> Option<u64> {
        if self.terms.told { bytes.checked_add(self.terms.granule) } else { Some(bytes) }
    }

    /// A context of a device has been opened.
    pub(crate) fn context_opened(&self, ctx: ContextId, device: DeviceId) {
        let parts = FreeRanges::kept_apart(self.terms.granule);
        let (kept, fitting) = Default::default();
        self.state()
            .contexts
            .insert(ctx, Owner { device, parts, spare: None, kept, fitting, bytes_kept: 0 });
    }

    /// Memory of a context, not of 0 bytes.
    pub(crate) fn take(&self, ctx: ContextId, bytes: u64, mut send: impl FnMut(Change)) -> Taken {
        let mut state = self.state();
        state.time += 1;
        let ArenaState { addresses, blocks, live, contexts, .. } = &mut *state;
        let Some(owner) = contexts.get_mut(&ctx) else { return Taken::Nothing };
        let whole = bytes.checked_next_multiple_of(self.terms.granule);
        let Some((whole, span)) = whole.and_then(|whole| Some((whole, self.span(whole)?))) else {
            return Taken::Nothing;
        };
        let part = self.part(bytes);
        let mut found = part.and_then(|part| owner.parts.take(part, ALIGN)).map(DevicePtr);
        if found.is_none()
            && let Some(address) = owner.take(whole)
        {
            if let Some(block) = blocks.get_mut(&address) {
                block.shared = part.is_some();
            }
            if let Some(part) = part {
                owner.parts.give(address.0 + part, whole - part);
            }
            found = Some(address);
        }
        let Some(address) = found else {
            let address = addresses.take(span, self.terms.granule);
            return address.map_or(Taken::Nothing, |at| {
                Taken::Block(Block { ctx, address: DevicePtr(at), bytes: whole })
            });
        };
        live.insert(address, bytes);
        if let Some((base, block)) = blocks.range_mut(..=address).next_back() {
            owner.uses(*base);
            block.live += 1;
        }
        if self.terms.told {
            send(Change::Opened(ctx, address, bytes));
        }
        Taken::Memory(address)
    }

    /// The server has mapped a block for an allocation of `bytes`, which begins at the block's
    /// start.
    pub(crate) fn mapped(
        &self,
        block: Block,
        bytes: u64,
        mut send: impl FnMut(Change),
    ) -> DevicePtr {
        let mut state = self.state();
        let part = self.part(bytes);
        let Block { ctx, address, bytes: whole } = block;
        state.blocks.insert(
            address,
            Held { ctx, bytes: whole, live: 1, shared: part.is_some(), exported: false },
        );
        state.live.insert(address, bytes);
        if let (Some(part), Some(owner)) = (part, state.contexts.get_mut(&ctx)) {
            owner.parts.give(address.0 + part, whole - part);
        }
        if self.terms.told {
            send(Change::Opened(ctx, address, bytes));
        }
        address
    }

    /// The server could not map a block: its addresses are free.
    pub(crate) fn refused(&self, block: Block) {
        let span = self.span(block.bytes).unwrap_or(block.bytes);
        self.state().addresses.give(block.address.0, span);
    }

    /// The contexts that have blocks, if an allocation begins at this address: work in any of them
    /// may use it.
    pub(crate) fn users_of(&self, address: DevicePtr) -> Option<Vec<ContextId>> {
        let state = self.state();
        state.live.contains_key(&address).then(|| state.contexts.keys().copied().collect())
    }

    /// Notes that an allocation is to be freed once work that is queued is done.
    pub(crate) fn free_late(&self, address: DevicePtr) {
        let mut state = self.state();
        state.time += 1;
        let time = state.time;
        state.late.push((time, address));
        self.any_late.store(true, Ordering::Release);
    }

    /// Whether there are allocations that are to be freed late: when the last one was noted, and
    /// the contexts that the work may be in.
    pub(crate) fn late(&self) -> Option<(u64, Vec<ContextId>)> {
        if !self.any_late.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state();
        let (time, _) = state.late.last()?;
        Some((*time, state.contexts.keys().copied().collect()))
    }

    /// Frees the allocations that were noted until then: no work uses them any more.
    pub(crate) fn free_noted(&self, until: u64, mut send: impl FnMut(Change)) -> Freed {
        let mut state = self.state();
        let noted = state.late.partition_point(|(time, _)| *time <= until);
        let late: Vec<_> = state.late.drain(..noted).collect();
        self.any_late.store(!state.late.is_empty(), Ordering::Release);
        for (_, address) in late {
            self.free_one(&mut state, address, &mut send);
        }
        self.freed(&state)
    }

    /// Frees an allocation that no work uses any more. `None` if there is none at this address.
    pub(crate) fn free(&self, address: DevicePtr, mut send: impl FnMut(Change)) -> Option<Freed> {
        let mut state = self.state();
        self.free_one(&mut state, address, &mut send)?;
        Some(self.freed(&state))
    }

    fn freed(&self, state: &ArenaState) -> Freed {
        Freed { is_unwatched: state.is_any_kept() && !self.watched.swap(true, Ordering::Relaxed) }
    }

    fn free_one(
        &self,
        state: &mut ArenaState,
        address: DevicePtr,
        send: &mut impl FnMut(Change),
    ) -> Option<()> {
        let bytes = state.live.remove(&address)?;
        state.time += 1;
        self.free_in_block(state, address, bytes, send);
        Some(())
    }

    fn free_in_block(
        &self,
        state: &mut ArenaState,
        address: DevicePtr,
        bytes: u64,
        send: &mut impl FnMut(Change),
    ) {
        let ArenaState { blocks, contexts, time, .. } = state;
        let Some((&base, block)) = blocks.range_mut(..=address).next_back() else { return };
        let Some(owner) = contexts.get_mut(&block.ctx) else { return };
        if self.terms.told || block.exported {
            send(Change::Closed(block.ctx, address, bytes));
        }
        block.live -= 1;
        if let Some(part) = self.part(bytes).filter(|_| block.shared && !block.exported) {
            owner.parts.give(address.0, part);
        }
        if block.live > 0 {
            return;
        }
        if block.shared && !block.exported && owner.spare(base, block.bytes) {
            return;
        }
        owner.parts.forget(base.0, block.bytes);
        let ctx = block.ctx;
        if block.exported || block.bytes > MOST_KEPT {
            self.unmap(state, base, send);
            return;
        }
        owner.keep(*time, base, block.bytes);
        self.shrink(state, ctx, MOST_KEPT, send);
    }

    /// Gives back the oldest credit of a context until at most `most` bytes are left.
    fn shrink(
        &self,
        state: &mut ArenaState,
        ctx: ContextId,
        most: u64,
        send: &mut impl FnMut(Change),
    ) {
        while let Some(owner) = state.contexts.get_mut(&ctx)
            && owner.bytes_kept > most
            && let Some(address) = owner.take_oldest()
        {
            self.unmap(state, address, send);
        }
    }

    fn unmap(&self, state: &mut ArenaState, address: DevicePtr, send: &mut impl FnMut(Change)) {
        let Some(Held { ctx, bytes, .. }) = state.blocks.remove(&address) else { return };
        send(Change::Unmapped(Block { ctx, address, bytes }));
        state.addresses.give(address.0, self.span(bytes).unwrap_or(bytes));
    }

    /// Gives back all that is kept; whether that was anything.
    pub(crate) fn give_all(&self, mut send: impl FnMut(Change)) -> bool {
        self.give_all_of(&mut self.state(), &mut send)
    }

    fn give_all_of(&self, state: &mut ArenaState, send: &mut impl FnMut(Change)) -> bool {
        let any = state.is_any_kept();
        let owners: Vec<ContextId> = state.contexts.keys().copied().collect();
        for ctx in owners {
            self.shrink(state, ctx, 0, send);
        }
        any
    }

    /// Gives credit back after nothing was allocated or freed for [`IDLE`], or when the server
    /// asks. Returns after which time to call this again; `None` if not before memory is freed.
    pub(crate) fn give_back_idle(
        &self,
        now: Instant,
        mut send: impl FnMut(Change),
    ) -> Option<Duration> {
        if !self.watched.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state();
        if state.seen.is_none_or(|(time, _)| time != state.time) {
            state.seen = Some((state.time, now));
        }
        let idle =
            state.seen.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since));
        if idle >= IDLE || self.wanted.swap(false, Ordering::AcqRel) {
            self.give_all_of(&mut state, &mut send);
        }
        if !state.is_any_kept() {
            state.seen = None;
            self.watched.store(false, Ordering::Relaxed);
            return None;
        }
        Some(IDLE.saturating_sub(idle))
    }

    /// Bytes that are kept of a context's device.
    pub(crate) fn kept_beside(&self, ctx: ContextId) -> u64 {
        let state = self.state();
        let Some(device) = state.contexts.get(&ctx).map(|owner| owner.device) else { return 0 };
        state
            .contexts
            .values()
            .filter(|owner| owner.device == device)
            .map(|owner| owner.bytes_kept)
            .sum()
    }

    /// Other sessions may have the allocation at this address. Nothing else comes to lie in its
    /// block from now on.
    pub(crate) fn exported(&self, address: DevicePtr) {
        let mut state = self.state();
        let ArenaState { blocks, live, contexts, .. } = &mut *state;
        if !live.contains_key(&address) {
            return;
        }
        let Some((base, block)) = blocks.range_mut(..=address).next_back() else { return };
        block.exported = true;
        if let Some(owner) = contexts.get_mut(&block.ctx) {
            owner.parts.forget(base.0, block.bytes);
        }
    }

    /// A context is about to end, and its blocks with it: nothing is said of them any more. Their
    /// addresses are free once [`Arena::ended`] is told of them.
    pub(crate) fn context_ends(&self, ctx: ContextId) -> Vec<Block> {
        let mut state = self.state();
        state.contexts.remove(&ctx);
        let ArenaState { blocks, live, late, .. } = &mut *state;
        let mut ending = Vec::new();
        for (address, Held { bytes, .. }) in blocks.extract_if(.., |_, block| block.ctx == ctx) {
            live.retain(|allocation, _| {
                *allocation < address || allocation.since(address) >= bytes
            });
            ending.push(Block { ctx, address, bytes });
        }
        // Their addresses may come to be another context's.
        late.retain(|(_, address)| live.contains_key(address));
        ending
    }

    /// The server has ended these blocks with their context.
    pub(crate) fn ended(&self, blocks: Vec<Block>) {
        blocks.into_iter().for_each(|block| self.refused(block));
    }

    /// Reserves addresses for the program, at `hint` if that is free. `None` if there are none that
    /// would do.
    pub(crate) fn reserve(&self, bytes: u64, align: u64, hint: DevicePtr) -> Option<DevicePtr> {
        let mut state = self.state();
        let align = align.max(self.terms.granule);
        let at_hint = hint.0.is_multiple_of(align) && state.addresses.take_at(hint.0, bytes);
        let address = if at_hint { hint } else { DevicePtr(state.addresses.take(bytes, align)?) };
        state.reserved.insert(address, bytes);
        Some(address)
    }

    /// Gives a reservation back, in which nothing is mapped; whether there was one.
    pub(crate) fn unreserve(&self, address: DevicePtr) -> bool {
        let mut state = self.state();
        let Some(bytes) = state.reserved.remove(&address) else { return false };
        state.addresses.give(address.0, bytes);
        true
    }
}
