//! What memory pools need of a device.

/// The part of a [`Backend`](super::Backend) for memory pools.
pub trait Pools: Sized {}
