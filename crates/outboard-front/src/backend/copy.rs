//! Copies of boxes: rows and slices of pitched memory, and of arrays.

use outboard_wire::boxes::Part;
pub use outboard_wire::boxes::{Extent, Layout};

use super::{ContextId, CopyMode, DevicePtr, HostPtr, ObjectId};

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

impl Side {
    /// The side of a part of the box that this is a side of, unless it lies beyond all addresses.
    pub(crate) fn part(&self, part: &Part) -> Option<Side> {
        let offset = self.layout.offset(part.at);
        Some(match self.memory {
            Memory::Host(address) => {
                Side { memory: Memory::Host(address.checked_add(offset?)?), ..*self }
            }
            Memory::Device(address) => {
                Side { memory: Memory::Device(address.checked_add(offset?)?), ..*self }
            }
            Memory::Array(_) => Side { at: part.within(self.at)?, ..*self },
        })
    }
}

/// A side of a copy, and a context of the server that has it; the stream's, for host memory.
pub type OwnedSide = (Side, ContextId);

/// A copy of a box of bytes between servers, or whose stream is another server's. At most one side
/// is host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossingCopy {
    /// Where it goes.
    pub dst: OwnedSide,
    /// Where it comes from.
    pub src: OwnedSide,
    /// Its size; not empty.
    pub extent: Extent,
    /// What it promises when it returns. Without host memory, [`CopyMode::Pinned`] means that it
    /// returns at once, and any other mode that the bytes have arrived.
    pub mode: CopyMode,
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
