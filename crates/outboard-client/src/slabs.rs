//! Where managed allocations lie: large ones are allocations of the device, small ones share one.

use std::collections::BTreeMap;
use std::ops::Range;

use outboard_front::backend::{ContextId, DevicePtr, UnifiedPtr};

use crate::pager::page_bytes;

/// Bytes of device memory that small allocations share.
pub(crate) const SLAB: u64 = 2 << 20;
/// Largest of them.
pub(crate) const SMALL: u64 = 512 << 10;

/// Managed allocations of a process.
#[derive(Debug)]
pub(crate) struct Slabs {
    blocks: BTreeMap<UnifiedPtr, Block>,
    /// Small allocations: their first address and pages.
    small: BTreeMap<UnifiedPtr, usize>,
}

/// An allocation of the device, and the part of it that is used: whole pages.
#[derive(Debug)]
struct Block {
    ctx: ContextId,
    /// Its address for the device.
    device: DevicePtr,
    bytes: u64,
    /// Which pages are taken, if small allocations share it.
    taken: Option<Vec<bool>>,
}

/// What the caller does with an allocation that is freed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// The device's allocation is not needed any more: its address there, and the addresses that
    /// were used.
    Block(DevicePtr, Range<UnifiedPtr>),
    /// Others share it.
    Part(Range<UnifiedPtr>),
}

impl Slabs {
    pub(crate) const fn new() -> Slabs {
        Slabs { blocks: BTreeMap::new(), small: BTreeMap::new() }
    }

    /// Adds an allocation of the device, shared by small ones or not.
    pub(crate) fn add(
        &mut self,
        ctx: ContextId,
        device: DevicePtr,
        range: &Range<UnifiedPtr>,
        shared: bool,
    ) {
        let bytes = range.end.since(range.start);
        let taken = shared.then(|| vec![false; (bytes / page_bytes()) as usize]);
        self.blocks.insert(range.start, Block { ctx, device, bytes, taken });
    }

    /// Takes room for a small allocation.
    pub(crate) fn take(&mut self, ctx: ContextId, bytes: u64) -> Option<UnifiedPtr> {
        let pages = bytes.div_ceil(page_bytes()) as usize;
        for (base, block) in self.blocks.iter_mut().filter(|(_, block)| block.ctx == ctx) {
            let Some(taken) = &mut block.taken else { continue };
            let found = (0..taken.len().saturating_sub(pages - 1))
                .find(|at| !taken[*at..at + pages].contains(&true));
            if let Some(at) = found {
                taken[at..at + pages].fill(true);
                let address = base.offset(at as u64 * page_bytes());
                self.small.insert(address, pages);
                return Some(address);
            }
        }
        None
    }

    /// Gives an allocation back.
    pub(crate) fn free(&mut self, address: UnifiedPtr) -> Option<Freed> {
        let (&base, block) = self.blocks.range_mut(..=address).next_back()?;
        if let Some(taken) = &mut block.taken {
            let pages = self.small.remove(&address)?;
            let first = (address.since(base) / page_bytes()) as usize;
            taken[first..first + pages].fill(false);
            if taken.contains(&true) {
                return Some(Freed::Part(address.range(pages as u64 * page_bytes())));
            }
        } else if base != address {
            return None;
        }
        let block = self.blocks.remove(&base)?;
        Some(Freed::Block(block.device, base.range(block.bytes)))
    }

    /// Forgets what a context had.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        let Slabs { blocks, small } = self;
        for (base, block) in blocks.extract_if(.., |_, block| block.ctx == ctx) {
            small.retain(|address, _| *address < base || *address >= base.offset(block.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_allocations_share_and_large_ones_do_not() {
        let (a, b) = (ContextId(1), ContextId(2));
        let mut slabs = Slabs::new();
        assert_eq!(slabs.take(a, 10), None);
        slabs.add(a, DevicePtr(0x9f0), &(UnifiedPtr(0x1000)..UnifiedPtr(0x5000)), true);
        slabs.add(a, DevicePtr(0x8000), &(UnifiedPtr(0x8000)..UnifiedPtr(0xa000)), false);
        assert_eq!(slabs.take(b, 10), None, "another context's");
        assert_eq!(
            (slabs.take(a, 10), slabs.take(a, 0x1001), slabs.take(a, 0x1001)),
            (Some(UnifiedPtr(0x1000)), Some(UnifiedPtr(0x2000)), None)
        );
        assert_eq!(slabs.take(a, 1), Some(UnifiedPtr(0x4000)));
        assert_eq!(slabs.free(UnifiedPtr(0x3000)), None, "no allocation begins there");
        assert_eq!(
            slabs.free(UnifiedPtr(0x2000)),
            Some(Freed::Part(UnifiedPtr(0x2000)..UnifiedPtr(0x4000)))
        );
        assert_eq!(slabs.free(UnifiedPtr(0x2000)), None);
        assert_eq!(slabs.take(a, 0x2000), Some(UnifiedPtr(0x2000)));
        assert_eq!(
            slabs.free(UnifiedPtr(0x8000)),
            Some(Freed::Block(DevicePtr(0x8000), UnifiedPtr(0x8000)..UnifiedPtr(0xa000)))
        );
        for address in [0x1000, 0x2000] {
            assert!(matches!(slabs.free(UnifiedPtr(address)), Some(Freed::Part(_))));
        }
        assert_eq!(
            slabs.free(UnifiedPtr(0x4000)),
            Some(Freed::Block(DevicePtr(0x9f0), UnifiedPtr(0x1000)..UnifiedPtr(0x5000)))
        );
        slabs.add(a, DevicePtr(1), &(UnifiedPtr(0x1000)..UnifiedPtr(0x5000)), true);
        slabs.take(a, 1);
        slabs.forget(a);
        assert!(slabs.blocks.is_empty() && slabs.small.is_empty());
    }
}
