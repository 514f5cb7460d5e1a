//! What access between devices needs of them.

use super::{ContextId, Result};

/// The part of a [`Backend`](super::Backend) for access between devices. Which devices can reach which is in the platform. All are calls.
pub trait Peers: Sized {
    /// Kernels of `ctx` may use the memory of `peer`, a context of another device, from now on.
    fn peer_enable(&self, ctx: ContextId, peer: ContextId) -> Result<()>;
    /// Undoes [`Peers::peer_enable`], once the work of `ctx` is done.
    fn peer_disable(&self, ctx: ContextId, peer: ContextId) -> Result<()>;
    /// A `CUdevice_P2PAttribute` of the way from one device (an ordinal) to another.
    fn peer_attribute(&self, from: u32, to: u32, attribute: u32) -> Result<i32>;
    /// What each `CUatomicOperation` on memory of another device can do: `CUatomicOperationCapability` bits.
    fn peer_atomics(&self, from: u32, to: u32, operations: &[u32]) -> Result<Vec<u32>>;
}
