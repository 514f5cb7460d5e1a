//! Types of the back end's methods for memory pools.

use super::DeviceId;

/// The kind of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolKind {
    /// The device.
    pub device: DeviceId,
    /// `CUmemAllocationHandleType` bits by which it may be shared; 0 for none.
    pub handle_types: u32,
    /// Most bytes it may have; 0 for as many as there are.
    pub max_bytes: u64,
    /// `CU_MEM_CREATE_USAGE_*`.
    pub usage: u32,
}
