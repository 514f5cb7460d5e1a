//! The location of a copy's sides. Each address is looked up once, here, and all decisions about
//! the copy use the result.

use outboard_abi::CUresult;

use super::path::{Copy, End, Operand};
use super::plan::SideMemory;
use crate::backend::{
    BoxCopy, ContextId, DevicePtr, Extent, HostPtr, Memory, ObjectId, Result, ServerId, Side,
    UnifiedPtr,
};
use crate::border::require;
use crate::context;
use crate::memory::{Found, check_found, context_of, find};
use crate::process::Front;

/// One side of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Resolved {
    pub(crate) side: Side,
    /// The allocation that contains its address, if there is one.
    found: Option<Found>,
    /// The context of an array.
    array: Option<ContextId>,
}

/// A copy whose sides are known.
#[derive(Clone, Copy)]
pub(crate) struct Sides {
    pub(crate) dst: Resolved,
    pub(crate) src: Resolved,
    pub(crate) extent: Extent,
}

impl Copy {
    /// Where its sides are.
    pub(crate) fn resolve(&self, front: &'static Front) -> Result<Sides> {
        let (dst, src) =
            (self.dst.resolve(front, self.extent)?, self.src.resolve(front, self.extent)?);
        Ok(Sides { dst, src, extent: self.extent })
    }
}

impl End {
    /// Where this side is. The map of allocations knows better than the call: page-locked memory
    /// may stand for device memory, and with unified addressing the other way around.
    fn resolve(&self, front: &'static Front, extent: Extent) -> Result<Resolved> {
        let (address, unknown) = match &self.operand {
            Operand::Array(array) => {
                // Of formats without elements only the driver knows the bounds.
                require(
                    array.descriptor.element().is_none() || array.descriptor.holds(self.at, extent),
                )?;
                let side = self.in_memory(Memory::Array(ObjectId(array.handle)), None);
                return Ok(Resolved { array: Some(array.id), ..side });
            }
            Operand::Host(HostPtr::NULL)
            | Operand::Device(DevicePtr::NULL)
            | Operand::Unified(UnifiedPtr::NULL) => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            Operand::Host(address) => (address.unified(), Memory::Host(*address)),
            Operand::Unified(address) => (*address, Memory::Host(address.host())),
            Operand::Device(address) => (address.unified(), Memory::Device(*address)),
        };
        let found = find(front, address);
        let memory = match &found {
            Some((_, _, allocation)) if allocation.kind.is_host() => Memory::Host(address.host()),
            Some(_) => Memory::Device(address.device()),
            None => unknown,
        };
        Ok(self.in_memory(memory, found))
    }

    fn in_memory(&self, memory: Memory, found: Option<Found>) -> Resolved {
        let side = Side { memory, layout: self.layout, at: self.at };
        Resolved { side, found, array: None }
    }
}

impl Resolved {
    /// Checks that a box fits below the end of all addresses and, on the device, into what was
    /// found.
    pub(crate) fn check(&self, front: &'static Front, extent: Extent) -> Result<()> {
        let span = self.side.layout.span(extent).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if let Memory::Device(address) = self.side.memory {
            let found = self.found.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            check_found(front, found, address.unified(), span)?;
        }
        Ok(())
    }

    /// The server that has its memory, if that is on the device.
    #[inline]
    pub(crate) fn server(&self) -> Option<ServerId> {
        match self.side.memory {
            Memory::Host(_) => None,
            Memory::Array(_) => self.array.map(ContextId::server),
            Memory::Device(_) => self.found.as_ref().map(|(_, _, allocation)| allocation.server),
        }
    }

    /// The context to which its memory belongs; `None` for the host's.
    pub(crate) fn context(&self, front: &'static Front) -> Result<Option<ContextId>> {
        let found = match self.side.memory {
            Memory::Host(_) => None,
            Memory::Array(_) => return Ok(self.array),
            Memory::Device(_) => self.found.as_ref(),
        };
        found.map(|(_, _, allocation)| context_of(front, allocation)).transpose()
    }

    /// The device of that memory, by its index among the visible ones.
    fn device(&self, front: &'static Front) -> Option<usize> {
        match self.side.memory {
            Memory::Host(_) => None,
            Memory::Array(_) => context::by_id(front, self.array?).map(|context| context.device),
            Memory::Device(_) => self.found.as_ref().map(|(_, _, allocation)| allocation.device),
        }
    }

    /// The facts that the plan needs. The box has been checked.
    #[inline]
    pub(crate) fn place(&self, extent: Extent) -> SideMemory {
        match (self.side.memory, &self.found) {
            (Memory::Array(_), _) => SideMemory::Array,
            (Memory::Host(_), None) => SideMemory::Host { pinned: false },
            (Memory::Host(address), Some((base, bytes, _))) => {
                let left = bytes - address.unified().since(*base);
                SideMemory::Host {
                    pinned: self.side.layout.span(extent).is_some_and(|span| span <= left),
                }
            }
            (Memory::Device(_), found) => SideMemory::Device {
                managed: found.is_some_and(|(_, _, allocation)| allocation.kind.is_managed()),
                synchronous: found.is_some_and(|(_, _, allocation)| allocation.synchronous),
            },
        }
    }
}

impl Sides {
    /// Makes one row of all rows, if both sides lie in one piece.
    pub(crate) fn join_rows(&mut self) -> Result<()> {
        let bytes = self.extent.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let is_packed = |side: &Side| {
            !matches!(side.memory, Memory::Array(_)) && side.layout.is_packed(self.extent)
        };
        if is_packed(&self.dst.side) && is_packed(&self.src.side) {
            self.extent = Extent::row(bytes);
        }
        Ok(())
    }

    pub(crate) fn check(&self, front: &'static Front) -> Result<()> {
        self.dst.check(front, self.extent)?;
        self.src.check(front, self.extent)
    }

    /// The servers that have its memory on the device.
    #[inline]
    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerId> {
        [self.dst.server(), self.src.server()].into_iter().flatten()
    }

    /// Whether both sides are on devices, and not on the same one.
    #[inline]
    pub(crate) fn are_of_two_devices(&self, front: &'static Front) -> bool {
        let on_host = |side: &Resolved| matches!(side.side.memory, Memory::Host(_));
        if on_host(&self.dst) || on_host(&self.src) {
            return false;
        }
        let [dst, src] = [&self.dst, &self.src].map(|side| side.device(front));
        dst.zip(src).is_some_and(|(dst, src)| dst != src)
    }

    /// The copy as the back end takes it.
    pub(crate) fn as_box(&self) -> BoxCopy {
        BoxCopy { dst: self.dst.side, src: self.src.side, extent: self.extent }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backend::Layout;

    fn resolved(layout: Layout) -> Resolved {
        Resolved {
            side: Side { memory: Memory::Host(HostPtr(4096)), layout, at: (0, 0, 0) },
            found: None,
            array: None,
        }
    }

    /// The source and the destination of each byte.
    fn bytes(sides: &Sides) -> Vec<(u64, u64)> {
        let (dst, src) =
            (sides.extent.rows(sides.dst.side.layout), sides.extent.rows(sides.src.side.layout));
        dst.zip(src)
            .flat_map(|((to, width), (from, _))| (0..width).map(move |x| (to + x, from + x)))
            .collect()
    }

    /// A layout in which a box's rows do not overlap, often without gaps.
    fn layout(extent: Extent, gap: u64, skip: u64) -> Layout {
        let pitch = extent.width + gap;
        Layout { pitch, slice: pitch * extent.height + skip }
    }

    proptest! {
        #[test]
        fn one_row_is_the_same_bytes(
            (width, height, depth) in (1u64..20, 1u64..5, 1u64..4),
            gaps in prop::array::uniform4(prop_oneof![2 => Just(0u64), 1 => 1u64..9]),
        ) {
            let extent = Extent { width, height, depth };
            let (dst, src) = (layout(extent, gaps[0], gaps[1]), layout(extent, gaps[2], gaps[3]));
            let plain = Sides { dst: resolved(dst), src: resolved(src), extent };
            let mut whole = plain;
            whole.join_rows().expect("it is small");
            prop_assert_eq!(bytes(&whole), bytes(&plain));
            // The number of bytes alone decides whether it is one row.
            let total = width * height * depth;
            let in_a_row = bytes(&plain).last() == Some(&(total - 1, total - 1));
            prop_assert_eq!(whole.extent == Extent::row(total), in_a_row);
        }
    }

    #[test]
    fn a_side_is_page_locked_if_all_of_it_is() {
        let extent = Extent { width: 8, height: 3, depth: 2 };
        let allocation = |kind| crate::memory::Allocation {
            ctx: ContextId::NONE,
            device: 0,
            server: Default::default(),
            context: 0,
            kind,
            synchronous: false,
            id: 1,
        };
        let host = allocation(crate::memory::Kind::HostRegistered(0));
        let layout = Layout { pitch: 16, slice: 100 };
        let span = layout.span(extent).expect("it is small");
        // The side is 96 bytes into the allocation.
        for (bytes, pinned) in [(span - 1, false), (span, true), (span + 1, true)] {
            let side =
                Resolved { found: Some((UnifiedPtr(4000), 96 + bytes, host)), ..resolved(layout) };
            assert_eq!(side.place(extent), SideMemory::Host { pinned }, "{bytes} bytes of {span}");
        }
        assert_eq!(resolved(layout).place(extent), SideMemory::Host { pinned: false });
    }
}
