//! Virtual memory: address ranges, physical memory, and which is mapped where.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use outboard_abi::CUmemAllocationProp;
use outboard_ranges::RangeMap;
use outboard_wire::DevicePtr;
use parking_lot::Mutex;

use crate::backend::{DeviceId, MemoryKind, ObjectId};
use crate::handles::{Kind, Table};

/// Physical memory.
pub(crate) struct Physical {
    pub(crate) handle: u64,
    pub(crate) bytes: u64,
    pub(crate) prop: CUmemAllocationProp,
    /// The visible device's index.
    pub(crate) device: usize,
    pub(crate) users: Mutex<Users>,
}

// SAFETY: the pointer in `prop` is for other systems; it is kept as a number and never followed.
unsafe impl Send for Physical {}

// SAFETY: as above.
unsafe impl Sync for Physical {}

/// The owners that keep physical memory alive.
#[derive(Default)]
pub(crate) struct Users {
    /// Created, imported or retained, and not released so often.
    pub(crate) handles: u32,
    pub(crate) mappings: u32,
}

impl Physical {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }
}

/// A mapped range.
pub(crate) struct Mapping {
    pub(crate) memory: Arc<Physical>,
    /// The access of each visible device, by index; those that may do nothing are left out.
    pub(crate) access: Vec<(usize, u32)>,
}

/// The use of a range of address space. Held while the backend changes it, so that both agree.
pub(crate) struct Space {
    /// With a device of the server that has each.
    pub(crate) reservations: RangeMap<DevicePtr, DeviceId>,
    pub(crate) mappings: RangeMap<DevicePtr, Mapping>,
}

/// Physical memory and address space of a process.
pub(crate) struct Vmm {
    pub(crate) memory: Table<Physical>,
    pub(crate) space: Mutex<Space>,
    /// What granularities were asked for, minimal or recommended, and the answers in bytes: they do
    /// not change.
    pub(crate) granularities: Mutex<Vec<((MemoryKind, bool), u64)>>,
    /// Whether the process has asked for the table by which it cuts mappings into allocations: then
    /// it may share these as such.
    pub(crate) is_cut: AtomicBool,
}

impl Vmm {
    pub(crate) const fn new() -> Vmm {
        Vmm {
            memory: Table::new(Kind::Memory),
            space: Mutex::new(Space { reservations: RangeMap::new(), mappings: RangeMap::new() }),
            granularities: Mutex::new(Vec::new()),
            is_cut: AtomicBool::new(false),
        }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let space = self.space.lock();
        self.memory.count() + space.reservations.len() + space.mappings.len()
    }
}
