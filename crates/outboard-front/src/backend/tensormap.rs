//! Tensor maps of pictures laid out by columns.

use crate::backend::DevicePtr;

/// What an im2col tensor map describes; the names and values are those of `cuTensorMapEncodeIm2col`
/// and `cuTensorMapEncodeIm2colWide`.
#[derive(Clone, Copy, Debug)]
pub struct Im2colMap<'a> {
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// Device address of the tensor.
    pub address: DevicePtr,
    /// Elements along each dimension, fastest first.
    pub dims: &'a [u64],
    /// Bytes from one index to the next of each dimension but the first.
    pub strides: &'a [u64],
    /// Lower corner of the box of pixels: one number for each dimension of space, or for `wide` the
    /// one of the width.
    pub lower: &'a [i32],
    /// Upper corner.
    pub upper: &'a [i32],
    /// Channels of a pixel, and pixels of a column.
    pub channels_and_pixels: (u32, u32),
    /// Step between elements along each dimension.
    pub element_strides: &'a [u32],
    /// `CUtensorMapInterleave`.
    pub interleave: u32,
    /// `CUtensorMapIm2ColWideMode`, for the wide form.
    pub wide: Option<u32>,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// `CUtensorMapL2promotion`.
    pub promotion: u32,
    /// `CUtensorMapFloatOOBfill`.
    pub fill: u32,
}
