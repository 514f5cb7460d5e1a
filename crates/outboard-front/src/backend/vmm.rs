//! Types of the back end's methods for virtual memory.

use super::DeviceId;

/// The properties of physical memory.
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

/// What becomes of a part of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartChange {
    /// Of a whole mapping, only parts may be used from now on: none to begin with.
    Divide,
    /// It may be used as an allocation of exactly these bytes.
    Open,
    /// It may not be used any more.
    Close,
}
