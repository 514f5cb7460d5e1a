//! What the session has allocated.

use std::collections::HashMap;

use outboard_abi::CUresult;
use outboard_ranges::RangeMap;
use outboard_wire::boxes::{Extent, Layout};
use outboard_wire::{ContextId, DevicePtr};

use super::staging::Registered;

/// Device memory that the client may name in copies. With unified addressing the driver would take
/// any address of this process, so that every address from the wire is looked up here first.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    all: RangeMap<DevicePtr, ContextId>,
    /// What an adapter knows of those that it has been asked to know, until they are taken out.
    registered: HashMap<DevicePtr, Registered>,
}

/// In place of a context: mapped memory, which is of none. Ranges of it that touch may be used as
/// one.
const MAPPED: ContextId = ContextId::NONE;

impl Allocations {
    pub(crate) fn insert(&mut self, base: DevicePtr, bytes: u64, ctx: ContextId) {
        self.all.insert(base, bytes, ctx);
    }

    /// Notes a mapping that a device may use.
    pub(crate) fn insert_mapped(&mut self, base: DevicePtr, bytes: u64) {
        self.all.insert(base, bytes, MAPPED);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of the allocation that starts at `base`.
    pub(crate) fn bytes_at(&self, base: DevicePtr) -> Result<u64, CUresult> {
        self.all.get(base).map(|(bytes, _)| bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Takes out the allocation that starts at `base`.
    pub(crate) fn remove(&mut self, base: DevicePtr) -> Result<(), CUresult> {
        self.registered.remove(&base);
        self.all.remove(base).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// `Ok` if `bytes` at `address` lie in one allocation, or in mappings next to each other.
    pub(crate) fn check(&self, address: DevicePtr, bytes: u64) -> Result<(), CUresult> {
        self.base(address, bytes).map(drop)
    }

    /// [`Allocations::check`], and where the allocation or the first mapping begins.
    fn base(&self, address: DevicePtr, bytes: u64) -> Result<DevicePtr, CUresult> {
        let (base, len, owner) =
            self.all.find(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if bytes <= len - address.since(base) {
            return Ok(base);
        }
        let mut covered = base.offset(len);
        let end = address.checked_add(bytes).filter(|_| *owner == MAPPED);
        let end = end.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        while covered < end {
            match self.all.get(covered) {
                Some((len, &MAPPED)) => covered = covered.offset(len),
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(base)
    }

    /// The allocation in which all of these bytes lie: where it begins, its bytes, and what an
    /// adapter knows of it.
    pub(crate) fn whole(
        &mut self,
        address: DevicePtr,
        bytes: u64,
    ) -> Option<((DevicePtr, u64), &Registered)> {
        let base = self.base(address, bytes).ok()?;
        let len = self.bytes_at(base).ok()?;
        (bytes <= len - address.since(base))
            .then(|| ((base, len), &*self.registered.entry(base).or_default()))
    }

    /// [`Allocations::check`] for `height` rows of `width` bytes, `pitch` apart.
    pub(crate) fn check_rows(
        &self,
        address: DevicePtr,
        width: u64,
        height: u64,
        pitch: u64,
    ) -> Result<(), CUresult> {
        let above = pitch
            .checked_mul(height.saturating_sub(1))
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.check(address, above.checked_add(width).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
    }

    /// [`Allocations::check`] for a box.
    pub(crate) fn check_box(
        &self,
        address: DevicePtr,
        layout: Layout,
        extent: Extent,
    ) -> Result<(), CUresult> {
        self.check(address, layout.span(extent).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
    }

    /// Where the allocations of a context begin.
    pub(crate) fn of(&self, ctx: ContextId) -> Vec<DevicePtr> {
        self.all.iter().filter(|(.., owner)| **owner == ctx).map(|(address, ..)| address).collect()
    }

    /// Forgets the allocations of a context that is gone.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.all.retain(|_, _, owner| *owner != ctx);
        let all = &self.all;
        self.registered.retain(|base, _| all.get(*base).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_allocated_may_be_named() {
        let mut allocations = Allocations::default();
        allocations.insert(DevicePtr(0x1000), 0x100, ContextId(1));
        allocations.insert(DevicePtr(0x2000), 0x100, ContextId(2));
        assert!(
            allocations.check(DevicePtr(0x1000), 0x100).is_ok()
                && allocations.check(DevicePtr(0x10ff), 1).is_ok()
        );
        for (address, bytes) in
            [(0xfff, 1), (0x1000, 0x101), (0x1100, 1), (0x10ff, u64::MAX), (u64::MAX, 1), (0, 0)]
        {
            assert!(
                allocations.check(DevicePtr(address), bytes).is_err(),
                "{address:#x} {bytes:#x}"
            );
        }
        let mut whole = |address, bytes| {
            allocations.whole(DevicePtr(address), bytes).map(|((base, len), _)| (base.0, len))
        };
        assert_eq!(whole(0x1010, 0xf0), Some((0x1000, 0x100)));
        assert_eq!([whole(0x1010, 0xf1), whole(0x10ff, u64::MAX), whole(0xfff, 1)], [None; 3]);
        assert!(allocations.check_rows(DevicePtr(0x1000), 0x10, 4, 0x40).is_ok());
        assert!(allocations.check_rows(DevicePtr(0x1000), 0x41, 4, 0x40).is_err());
        assert!(allocations.check_rows(DevicePtr(0x1000), 1, u64::MAX, u64::MAX).is_err());
        allocations.insert_mapped(DevicePtr(0x3000), 0x100);
        allocations.insert_mapped(DevicePtr(0x3100), 0x100);
        allocations.insert(DevicePtr(0x3200), 0x100, ContextId(2));
        assert!(allocations.check(DevicePtr(0x3001), 0x1ff).is_ok(), "mappings that touch");
        assert!(
            allocations.check(DevicePtr(0x3001), 0x200).is_err()
                && allocations.check(DevicePtr(0x3001), u64::MAX).is_err()
        );
        assert!(
            allocations.check(DevicePtr(0x3200), 0x101).is_err()
                && allocations.check(DevicePtr(0x20ff), 0xf10).is_err()
        );
        allocations.forget(ContextId(1));
        assert!(
            allocations.check(DevicePtr(0x1000), 1).is_err()
                && allocations.check(DevicePtr(0x2000), 1).is_ok()
        );
    }
}
