//! Page-locked memory that kernels are given.

use std::ops::Range;

use outboard_front::backend::{ContextId, HostPtr, Result, UnifiedPtr};
use outboard_wire::messages as msg;

use crate::host::Pinned;
use crate::pager::{COMMON, page_bytes};
use crate::remote::Remote;

/// The bytes of page-locked memory that the device is given: memory that was allocated here lies on
/// pages of its own.
pub(super) fn extent(base: HostPtr, pinned: &Pinned) -> Range<UnifiedPtr> {
    let base = base.unified();
    let end = base.offset(pinned.bytes);
    base..if pinned.registered { end } else { end.next_multiple_of(page_bytes()) }
}

impl Remote {
    /// Page-locked memory among the parameters of a launch becomes mapped, unless it is.
    #[inline]
    pub(in crate::remote) fn map_parameters(
        &'static self,
        ctx: ContextId,
        params: &[u8],
    ) -> Result<()> {
        if !self.host.is_in_use() {
            return Ok(());
        }
        for word in params.as_chunks::<8>().0 {
            let address = HostPtr(u64::from_ne_bytes(*word));
            if self.host.may_contain(address) {
                self.map_host(ctx, address)?;
            }
        }
        Ok(())
    }

    /// Gives the device the page-locked memory at an address, if there is any; whether there is.
    pub(in crate::remote) fn map_host(
        &'static self,
        ctx: ContextId,
        address: HostPtr,
    ) -> Result<bool> {
        let found = self.host.find(address);
        if found.is_some_and(|(_, pinned)| pinned.mapped.is_some()) {
            return Ok(true);
        }
        let _one_at_a_time = self.mapping.lock();
        let Some((base, pinned)) =
            self.host.find(address).filter(|(_, pinned)| pinned.mapped.is_none())
        else {
            return Ok(found.is_some());
        };
        // Copies under way reach the memory as it is now.
        self.finish_copies_everywhere(base, pinned.bytes)?;
        let range = extent(base, &pinned);
        let bytes = range.end.since(range.start);
        self.open_mapped(ctx, &range)?;
        let made = if COMMON.whole(range.start).is_some() {
            // Kernels of another server have been given it before.
            COMMON.add(&range, self.part(ctx))
        } else {
            // SAFETY: page-locked memory stays until it is freed or unregistered, which
            // `unmap_host` comes before.
            unsafe { self.pager.add_mapped(ctx, range) }
        };
        if let Err(error) = made {
            let _ =
                self.call_idle(ctx, &msg::MappedClose { address: base.unified(), bytes }, |_| ());
            return Err(error);
        }
        self.host.set_mapped(base, Some(ctx));
        Ok(true)
    }

    /// Unmaps page-locked memory from the device; fetches what the device has written if the
    /// program keeps the memory.
    pub(in crate::remote) fn unmap_host(&self, base: HostPtr, keep: bool) {
        let Some((start, pinned)) = self.host.find(base).filter(|(start, _)| *start == base) else {
            return;
        };
        if pinned.is_borrowed {
            self.host.unregister(base.pointer());
        } else {
            self.end_common(base, &pinned, keep);
        }
        let Some(ctx) = pinned.mapped else { return };
        let range = extent(start, &pinned);
        if !pinned.shared {
            self.pager.remove(&range, keep);
        }
        self.host.set_mapped(base, None);
        let (address, bytes) = (base.unified(), range.end.since(range.start));
        // The context may be gone or faulted; then so is the memory there. The program's own pages
        // are gone when this returns.
        self.close_mapped(ctx, (address, bytes), pinned.registered && pinned.shared);
    }

    /// Has the device give up memory that was opened, once no work uses it any more; when this
    /// returns, if that is to be `at_once`.
    pub(super) fn close_mapped(
        &self,
        ctx: ContextId,
        (address, bytes): (UnifiedPtr, u64),
        at_once: bool,
    ) {
        if at_once
            || !self.post_if_idle(ctx, &msg::MappedCloseIdle { address, bytes }).unwrap_or(false)
        {
            let _ = self.call_idle(ctx, &msg::MappedClose { address, bytes }, |_| ());
        }
    }
}
