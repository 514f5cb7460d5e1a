//! What memory and events shared among processes need of a device.

use std::os::fd::{BorrowedFd, OwnedFd};

use super::{ContextId, MemoryKind, ObjectId, Result};

/// What a program passes to another process in place of memory, an event or a pointer: the 64 bytes of `CUipcMemHandle` and its like.
pub type Token = [u8; 64];

/// The part of a [`Backend`](super::Backend) for memory and events shared among processes. A token or descriptor may come from anywhere: what is none
/// of this backend's is `CUDA_ERROR_INVALID_VALUE`. All are calls.
pub trait Sharing: Sized {
    /// Names the allocation of `bytes` that starts at `address`.
    fn share_memory(&self, ctx: ContextId, address: u64, bytes: u64) -> Result<Token>;
    /// Maps an allocation of another process: its address, the same at each time, and its bytes.
    fn open_memory(&self, ctx: ContextId, token: &Token, flags: u32) -> Result<(u64, u64)>;
    /// Undoes one [`Sharing::open_memory`].
    fn close_memory(&self, ctx: ContextId, address: u64) -> Result<()>;
    /// Names an event that was made for this.
    fn share_event(&self, ctx: ContextId, event: ObjectId) -> Result<Token>;
    /// Another process's event is `event` from now on.
    fn open_event(&self, ctx: ContextId, event: ObjectId, token: &Token) -> Result<()>;

    /// A descriptor for physical memory that was created for this.
    fn export_physical(&self, memory: ObjectId) -> Result<OwnedFd>;
    /// The memory of a descriptor is `memory` from now on. Its bytes and what it was created with.
    fn import_physical(&self, memory: ObjectId, fd: BorrowedFd<'_>) -> Result<(u64, MemoryKind)>;
    /// A descriptor for a pool that was created for this.
    fn export_pool(&self, pool: ObjectId) -> Result<OwnedFd>;
    /// The pool of a descriptor is `pool` from now on. The ordinal of its device.
    fn import_pool(&self, pool: ObjectId, fd: BorrowedFd<'_>) -> Result<u32>;
    /// Names an allocation of `bytes` from such a pool.
    fn share_pooled(&self, address: u64, bytes: u64) -> Result<Token>;
    /// Maps an allocation of an imported pool: address and bytes.
    fn open_pooled(&self, ctx: ContextId, pool: ObjectId, token: &Token) -> Result<(u64, u64)>;
}
