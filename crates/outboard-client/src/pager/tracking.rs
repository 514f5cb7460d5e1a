//! Starts and ends the tracking of memory.

use std::ops::Range;
use std::sync::Once;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result, UnifiedPtr};

use super::inner::Inner;
use super::open::Open;
use super::pages::{self, Shared, page_bytes};
use super::region::Region;
use super::store::{Home, Kind};
use super::{Brought, COMMON, Pager, Wait, fault, watch};
use crate::speech;

/// Says that system calls do not reach memory whose pages are closed, if that is so.
fn say_closed() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if watch::has_system_calls() {
            return;
        }
        let signals = match watch::watch() {
            Some(_) => "",
            None => {
                ", and a handler for SIGSEGV that is set from now on may get faults that are not \
                 the program's"
            }
        };
        let sentence = format!(
            "the program has managed memory, or more page-locked memory that kernels use than stays \
             accessible: system calls that read or write it there may fail with EFAULT{signals} \
             (`outboard docs limits`, \"Weak spots\")",
        );
        speech::say(&sentence);
        outboard_front::warn(sentence);
    });
}

/// How much of a range is tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tracked {
    /// None of it.
    None,
    /// Part of it.
    Some,
    /// All of it.
    All,
}

/// What another looks after from now on.
#[derive(Default)]
pub(super) struct Released {
    /// First addresses, where the bytes are, the pages, and which of them the device may have
    /// changed.
    pub(super) regions: Vec<(UnifiedPtr, Home, Shared, Vec<bool>)>,
    pub(super) opens: Vec<Open>,
    /// Whether there is work that no wait has covered yet. A wait that ends from now on finds
    /// nothing here to tell of what that work has written.
    pub(super) is_busy: bool,
}

impl Pager {
    /// Tracks managed memory of `home`: whole pages that nothing on this machine has. `Ok(false)`
    /// if something has them. With `fresh`, the device has zeros there; without, it has what its
    /// module says. Only `span` is the program's, and what [`Pager::allocate`] adds.
    pub(crate) fn add_managed(
        &'static self,
        home: ContextId,
        base: UnifiedPtr,
        bytes: usize,
        fresh: bool,
        span: Option<Range<UnifiedPtr>>,
    ) -> Result<bool> {
        let mut inner = self.lock();
        self.start(&mut inner)?;
        fault::arm_unless_watched().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        say_closed();
        let home = Home { kind: Kind::Managed, ctx: home };
        let Ok(region) =
            Region::managed(home, base, bytes, span.into_iter().collect(), fresh, &self.reserved)
        else {
            return Ok(false);
        };
        if fresh {
            // The zeros must be there before work that uses the memory.
            *inner.sent.entry(home.ctx).or_default() += 1;
        }
        inner.regions.insert(base, region);
        inner.publish();
        Ok(true)
    }

    /// Tracks a managed variable of a module, which may share pages with others of them.
    pub(crate) fn add_variable(
        &'static self,
        home: ContextId,
        variable: Range<UnifiedPtr>,
    ) -> Result<()> {
        let mut at = variable.start.previous_multiple_of(page_bytes());
        while at < variable.end {
            // The pages up to the next region, or those of the one that is here.
            let (end, known) = {
                let mut inner = self.lock();
                let next = inner
                    .regions
                    .range(at.offset(1)..)
                    .next()
                    .map_or(UnifiedPtr(u64::MAX), |(base, _)| *base);
                match inner.region(at) {
                    Some(region) => {
                        let range = region.range();
                        region
                            .add_span(variable.start.max(range.start)..variable.end.min(range.end));
                        (range.end, true)
                    }
                    None => (variable.end.next_multiple_of(page_bytes()).min(next), false),
                }
            };
            let span = variable.start.max(at)..variable.end.min(end);
            if !known && !self.add_managed(home, at, end.since(at) as usize, false, Some(span))? {
                return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            }
            at = end;
        }
        Ok(())
    }

    /// Tracks memory of the program, which the device has under the same addresses, zeroed. So much
    /// that it costs little to compare stays accessible.
    ///
    /// # Safety
    /// The memory is readable and writable until [`Pager::remove`].
    pub(crate) unsafe fn add_mapped(
        &'static self,
        ctx: ContextId,
        range: Range<UnifiedPtr>,
    ) -> Result<()> {
        let home = Home { kind: Kind::Mapped, ctx };
        let (first, last) = (
            range.start.next_multiple_of(page_bytes()),
            range.end.previous_multiple_of(page_bytes()),
        );
        let mut inner = self.lock();
        self.start(&mut inner)?;
        if first >= last || inner.opens.has_room(range.end.since(range.start) as usize) {
            inner.opens.add(home, &range);
            inner.publish();
            return Ok(());
        }
        fault::arm().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        say_closed();
        for edge in [range.start..first, last..range.end] {
            if edge.start < edge.end {
                inner.opens.add(home, &edge);
            }
        }
        let bytes = last.since(first) as usize;
        let seed = inner.seed;
        // Writes that come while the pages are copied wait, by the pager's lock, until the new
        // pages are there.
        inner.publish_with(Some((first, last)));
        let made = pages::protect(first.host(), bytes, pages::Access::Read).and_then(|()| {
            // SAFETY: by the contract above; the pages cannot be written to now.
            unsafe {
                let mut region = Region::mapped(home, first, bytes, seed)?;
                region.show()?;
                Ok(region)
            }
        });
        match made {
            Ok(region) => {
                inner.regions.insert(first, region);
                inner.publish();
                Ok(())
            }
            Err(_) => {
                let _ = pages::protect(first.host(), bytes, pages::Access::Write);
                inner.opens.take_out(&range);
                inner.publish();
                Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
            }
        }
    }

    /// Stops tracking the memory at these addresses, whole regions of it. Managed memory is gone
    /// then; what stands in the place of mapped memory is the caller's to say, who gets the bytes
    /// of a range if they are wanted, up to date.
    pub(crate) fn remove(&self, range: &Range<UnifiedPtr>, keep: bool) {
        let Ok(store) = self.store() else { return };
        let mut inner = self.lock();
        if keep && !inner.outstanding.is_empty() {
            inner.take_opens(store, &Wait::default(), &Brought::default());
        }
        let Inner { regions, opens, moved, .. } = &mut *inner;
        opens.take_out(range);
        let bases: Vec<UnifiedPtr> =
            regions.range(range.start..range.end).map(|(base, _)| *base).collect();
        for base in bases {
            let Some(mut region) = regions.remove(&base) else { continue };
            if keep {
                // A failure leaves the bytes as they are: the next call of the program reports it.
                let _ = region.bring(store, range, moved);
                region.give_back();
            }
        }
        inner.publish();
        self.note_active(&mut inner);
    }

    /// Gives what is tracked at these addresses to another to look after, with what the device has
    /// of it. Touches are still for this one until [`Pager::publish`].
    pub(super) fn release(&self, range: &Range<UnifiedPtr>) -> Released {
        let mut released = Released::default();
        let Ok(store) = self.store() else { return released };
        let mut inner = self.lock();
        let Inner { regions, opens, moved, outstanding, .. } = &mut *inner;
        released.is_busy = !outstanding.is_empty();
        let bases: Vec<UnifiedPtr> = regions.range(range.clone()).map(|(base, _)| *base).collect();
        for base in bases {
            let Some(region) = regions.remove(&base) else { continue };
            let home = region.home;
            let (memory, stale) = region.release(store, moved);
            released.regions.push((base, home, memory, stale));
        }
        released.opens = opens.hand_over(range, store, moved);
        released
    }

    /// Tells the fault handler what is tracked.
    pub(super) fn publish(&self) {
        self.lock().publish();
    }

    /// Of sums.
    pub(super) fn seed(&self) -> u64 {
        self.lock().seed
    }

    /// The region of managed memory that an address is in.
    pub(crate) fn managed_region(&self, address: UnifiedPtr) -> Option<Range<UnifiedPtr>> {
        let mut inner = self.lock();
        let region = inner.region(address)?;
        (region.home.kind == Kind::Managed).then(|| region.range())
    }

    /// Forgets the memory of a context that has ended. Mapped memory keeps its bytes: the program
    /// has it still.
    pub(crate) fn remove_context(&self, ctx: ContextId) {
        let mut inner = self.lock();
        let of_it = inner.regions.values().filter(|region| region.home.ctx == ctx);
        let ranges: Vec<_> = of_it.map(|region| (region.range(), region.home.kind)).collect();
        inner.opens.forget_context(ctx);
        inner.publish();
        inner.forget_context(ctx);
        self.note_busy(&inner);
        drop(inner);
        for (range, kind) in ranges {
            self.remove(&range, kind == Kind::Mapped);
        }
    }

    /// Whether all, or any, of these addresses are tracked.
    pub(crate) fn tracks(&self, range: &Range<UnifiedPtr>) -> Tracked {
        if !self.is_active() {
            return Tracked::None;
        }
        let mut covered = Vec::new();
        if let Some(server) = self.common() {
            covered = COMMON.of_server(server, range);
        }
        let mut inner = self.lock();
        covered.extend(inner.opens.ranges());
        covered
            .extend(inner.regions.range(..range.end).next_back().map(|(_, region)| region.range()));
        covered.extend(inner.region(range.start).map(|region| region.range()));
        covered.retain(|part| part.start < range.end && range.start < part.end);
        covered.sort_by_key(|part| part.start);
        covered.dedup();
        let mut at = range.start;
        for part in &covered {
            if part.start > at {
                break;
            }
            at = at.max(part.end);
        }
        match covered.is_empty() {
            true => Tracked::None,
            false if at >= range.end => Tracked::All,
            false => Tracked::Some,
        }
    }

    /// Memory at these addresses, in a region that is there, is allocated.
    pub(crate) fn allocate(&self, range: Range<UnifiedPtr>) {
        if let Some(region) = self.lock().region(range.start) {
            region.add_span(range);
        }
    }

    /// Memory at these addresses, in a region that stays, has been freed and is as good as new.
    pub(crate) fn refresh(&self, range: &Range<UnifiedPtr>) {
        if let Some(region) = self.lock().region(range.start) {
            region.refresh(range);
        }
    }
}
