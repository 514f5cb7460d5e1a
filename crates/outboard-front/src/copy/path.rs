//! A copy as a call describes it: its two sides and its size.

use std::sync::Arc;

use crate::array::Array;
use crate::backend::{DevicePtr, Extent, HostPtr, Layout, UnifiedPtr};

/// The kind of memory that a call states for one side.
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
    /// As in [`Side::at`](crate::backend::Side::at).
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
        let end =
            |operand| End { operand, layout: Layout { pitch: bytes, slice: bytes }, at: (0, 0, 0) };
        Copy { dst: end(dst), src: end(src), extent: Extent::row(bytes) }
    }
}
