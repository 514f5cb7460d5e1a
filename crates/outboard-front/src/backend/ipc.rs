//! What memory and events shared among processes need of a device.

/// The part of a [`Backend`](super::Backend) for memory and events shared among processes.
pub trait Sharing: Sized {}
