//! What the virtual-memory calls need of a device.

use super::DeviceId;

/// What physical memory is asked for with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryKind {
    /// The device.
    pub device: DeviceId,
    /// `CUmemAllocationHandleType` bits by which it may be shared; 0 for none.
    pub handle_types: u32,
    /// `CUmemAllocationCompType`.
    pub compression: u32,
    /// `CU_MEM_CREATE_USAGE_*`.
    pub usage: u32,
}
