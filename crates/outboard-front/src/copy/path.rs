//! A copy: its two sides and its size.

use std::sync::Arc;

use outboard_abi::CUresult;

use crate::array::Array;
use crate::backend::{
    BoxCopy, ContextId, DevicePtr, Extent, HostPtr, Layout, Memory, ObjectId, Result, Side, UnifiedPtr,
};
use crate::border::require;
use crate::memory::find;
use crate::process::Front;
use crate::several::together;

/// What a call says that one side is in.
#[derive(Clone)]
pub(crate) enum Operand {
    /// Host memory.
    Host(HostPtr),
    /// Device memory.
    Device(DevicePtr),
    /// Either, to be told by the address.
    Unified(UnifiedPtr),
    /// An array.
    Array(Arc<Array>),
}

/// One side of a copy as a call describes it.
#[derive(Clone)]
pub(crate) struct End {
    pub(crate) operand: Operand,
    pub(crate) layout: Layout,
    /// As in [`Side::at`].
    pub(crate) at: (u64, u64, u64),
}

/// A copy as a call describes it, checked but for where its sides are.
#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) dst: End,
    pub(crate) src: End,
    pub(crate) extent: Extent,
}

impl Copy {
    /// A copy of bytes in one piece.
    pub(crate) fn row(dst: Operand, src: Operand, bytes: u64) -> Copy {
        let end = |operand| End { operand, layout: Layout { pitch: bytes, slice: bytes }, at: (0, 0, 0) };
        Copy { dst: end(dst), src: end(src), extent: Extent::row(bytes) }
    }

    /// Where its sides are. It is to be done in a context.
    pub(crate) fn sides(&self, front: &'static Front, ctx: ContextId) -> Result<BoxCopy> {
        let (dst, src) = (self.dst.side(front, ctx, self.extent)?, self.src.side(front, ctx, self.extent)?);
        Ok(BoxCopy { dst, src, extent: self.extent })
    }
}

impl End {
    /// Where this side is. The map of allocations knows better than the call: page-locked memory may stand for device memory, and with
    /// unified addressing the other way around.
    fn side(&self, front: &'static Front, ctx: ContextId, extent: Extent) -> Result<Side> {
        let kind = |address: UnifiedPtr| find(front, address).map(|(_, _, allocation)| allocation.kind);
        let told = |address: UnifiedPtr| match kind(address) {
            Some(kind) if !kind.is_host() => Memory::Device(address.device()),
            _ => Memory::Host(address.host()),
        };
        let memory = match &self.operand {
            Operand::Array(array) => {
                together(ctx, array.id)?;
                // Of formats without elements only the driver knows the bounds.
                require(array.descriptor.element().is_none() || array.descriptor.holds(self.at, extent))?;
                Memory::Array(ObjectId(array.handle))
            }
            Operand::Host(HostPtr::NULL) | Operand::Device(DevicePtr::NULL) | Operand::Unified(UnifiedPtr::NULL) => {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            Operand::Host(address) => told(address.unified()),
            Operand::Unified(address) => told(*address),
            Operand::Device(address) => match kind(address.unified()) {
                Some(kind) if kind.is_host() => Memory::Host(address.unified().host()),
                _ => Memory::Device(*address),
            },
        };
        Ok(Side { memory, layout: self.layout, at: self.at })
    }
}
