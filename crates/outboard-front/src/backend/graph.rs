//! What graphs need of a device.

/// The part of a [`Backend`](super::Backend) for graphs.
pub trait Graphs: Sized {}
