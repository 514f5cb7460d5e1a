//! What arrays, textures and surfaces need of a device.

/// The part of a [`Backend`](super::Backend) for arrays, textures and surfaces.
pub trait Arrays: Sized {}
