//! What memory pools need of a device.

use super::{ContextId, ObjectId, Result, Stream};

/// What a pool is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolKind {
    /// The device's ordinal.
    pub device: u32,
    /// `CUmemAllocationHandleType` bits by which it may be shared; 0 for none.
    pub handle_types: u32,
    /// Most bytes it may have; 0 for as many as there are.
    pub max_bytes: u64,
    /// `CU_MEM_CREATE_USAGE_*`.
    pub usage: u32,
}

/// The part of a [`Backend`](super::Backend) for memory pools. Pools are of devices, not of contexts.
pub trait Pools: Sized {
    /// The default pool of a device (an ordinal) is `pool` from now on. Posted.
    fn pool_default(&self, pool: ObjectId, device: u32) -> Result<()>;
    /// Makes a pool. Call.
    fn pool_create(&self, pool: ObjectId, kind: PoolKind) -> Result<()>;
    /// Ends a pool; what is allocated from it stays until it is freed. Posted.
    fn pool_destroy(&self, pool: ObjectId) -> Result<()>;
    /// Gives memory that is not used back to the device, all but `keep` bytes. Call.
    fn pool_trim(&self, pool: ObjectId, keep: u64) -> Result<()>;
    /// The value of a `CUmemPool_attribute`. Call.
    fn pool_attribute(&self, pool: ObjectId, attribute: u32) -> Result<u64>;
    /// Sets a `CUmemPool_attribute` that can be set, to a value that it can have. Posted.
    fn pool_set_attribute(&self, pool: ObjectId, attribute: u32, value: u64) -> Result<()>;
    /// Says which devices (ordinals) may do what (`CUmemAccess_flags`) with the pool's memory. Call.
    fn pool_set_access(&self, pool: ObjectId, access: &[(u32, u32)]) -> Result<()>;
    /// What a device may do with the pool's memory. Call.
    fn pool_access(&self, pool: ObjectId, device: u32) -> Result<u32>;
    /// Allocates in the stream's order. Call.
    fn pool_alloc(&self, ctx: ContextId, pool: ObjectId, bytes: u64, stream: Stream) -> Result<u64>;
}
