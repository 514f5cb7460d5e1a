//! What the virtual-memory calls need of a device.

use super::{ObjectId, Result};

/// What physical memory is asked for with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryKind {
    /// The device's ordinal in the [`Platform`](outboard_wire::platform::Platform).
    pub device: u32,
    /// `CUmemAllocationHandleType` bits by which it may be shared; 0 for none.
    pub handle_types: u32,
    /// `CUmemAllocationCompType`.
    pub compression: u32,
    /// `CU_MEM_CREATE_USAGE_*`.
    pub usage: u32,
}

/// The part of a [`Backend`](super::Backend) for the virtual-memory calls. None of it needs a context. The front has checked that ranges lie in
/// reservations, do not overlap mappings, or are whole mappings, as each asks.
pub trait VirtualMemory: Sized {
    /// Bytes of which sizes and addresses must be multiples. Call.
    fn vmm_granularity(&self, kind: MemoryKind, recommended: bool) -> Result<u64>;
    /// Reserves addresses, at a multiple of `align` (0: any), at `hint` if that is free. Call.
    fn vmm_reserve(&self, bytes: u64, align: u64, hint: u64) -> Result<u64>;
    /// Gives a reservation back. Call.
    fn vmm_free(&self, address: u64, bytes: u64) -> Result<()>;
    /// Allocates physical memory, which is `memory` from now on. Call.
    fn vmm_create(&self, memory: ObjectId, bytes: u64, kind: MemoryKind) -> Result<()>;
    /// Frees physical memory, which is mapped nowhere. Posted.
    fn vmm_release(&self, memory: ObjectId) -> Result<()>;
    /// Maps `bytes` of physical memory from `offset` on. Call.
    fn vmm_map(&self, address: u64, bytes: u64, offset: u64, memory: ObjectId) -> Result<()>;
    /// Unmaps whole mappings, once the work that may use them is done. Call.
    fn vmm_unmap(&self, address: u64, bytes: u64) -> Result<()>;
    /// Says which devices (ordinals) may do what (`CUmemAccess_flags`) with whole mappings. Call.
    fn vmm_set_access(&self, address: u64, bytes: u64, access: &[(u32, u32)]) -> Result<()>;
}
