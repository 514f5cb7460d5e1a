//! What questions about a device need of it that its snapshot does not answer.

use super::Result;

/// The part of a [`Backend`](super::Backend) for questions about devices, named by their ordinals.
pub trait Devices: Sized {
    /// Texels of the widest 1D texture in linear memory, for a `CUarray_format` and a number of channels. Call.
    fn texture_1d_width(&self, device: u32, format: u32, channels: u32) -> Result<u64>;
}
