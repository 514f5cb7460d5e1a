//! What the virtual-memory calls need of a device.

/// The part of a [`Backend`](super::Backend) for the virtual-memory calls.
pub trait VirtualMemory: Sized {}
