//! Copies of boxes: rows and slices of pitched memory, and of arrays.

pub use outboard_wire::boxes::{Extent, Layout};

use super::{DevicePtr, HostPtr, ObjectId};

/// The memory of one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Host memory, from this address on.
    Host(HostPtr),
    /// Device memory, from this address on.
    Device(DevicePtr),
    /// An array.
    Array(ObjectId),
}

/// One side of a copy of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Its memory.
    pub memory: Memory,
    /// Where its rows lie; not used for arrays.
    pub layout: Layout,
    /// Where in an array it begins: bytes within a row, row, slice or layer. Part of the address
    /// for other memory.
    pub at: (u64, u64, u64),
}

/// A copy of a box of bytes. At most one side is host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoxCopy {
    /// Where it goes.
    pub dst: Side,
    /// The source.
    pub src: Side,
    /// Its size; not empty.
    pub extent: Extent,
}
