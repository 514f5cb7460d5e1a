//! What functions of the program that a stream calls need of a device.

/// The part of a [`Backend`](super::Backend) for functions of the program that a stream calls.
pub trait HostCalls: Sized {}
