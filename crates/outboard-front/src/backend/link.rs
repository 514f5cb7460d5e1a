//! What the linker needs of a device.

/// The part of a [`Backend`](super::Backend) for the linker.
pub trait Linking: Sized {}
