//! What green contexts need of a device.

/// The part of a [`Backend`](super::Backend) for green contexts.
pub trait GreenContexts: Sized {}
