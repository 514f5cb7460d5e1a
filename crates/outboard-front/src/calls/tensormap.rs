//! Tensor maps: layouts of tensors in the device's own format, which only its driver knows.

use core::ffi::{c_int, c_void};

use outboard_abi::{
    CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode,
    CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle, cuuint32_t, cuuint64_t,
};

use crate::backend::{Backend, DevicePtr, Im2colMap, Result, TiledMap};
use crate::border::{require, slice};
use crate::context;
use crate::process::Process;

/// Most dimensions of a tensor map.
const MAX_RANK: u32 = 5;
/// Least dimensions of one laid out by columns: channels, width, batch.
const MIN_IM2COL_RANK: u32 = 3;

pub unsafe fn cuTensorMapEncodeTiled<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUtensorMap,
    data_type: CUtensorMapDataType,
    rank: cuuint32_t,
    address: *mut c_void,
    dims: *const cuuint64_t,
    strides: *const cuuint64_t,
    box_dims: *const cuuint32_t,
    element_strides: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && (1..=MAX_RANK).contains(&rank))?;
    let rank = rank as usize;
    // SAFETY: the program gives arrays of these lengths.
    let map = unsafe {
        TiledMap {
            data_type: data_type.0,
            address: DevicePtr(address as u64),
            dims: slice(dims, rank)?,
            strides: slice(strides, rank - 1)?,
            box_dims: slice(box_dims, rank)?,
            element_strides: slice(element_strides, rank)?,
            interleave: interleave.0,
            swizzle: swizzle.0,
            promotion: promotion.0,
            fill: fill.0,
        }
    };
    let bytes = here.note(process.backend.tensor_map_tiled(here.id, &map))?;
    // SAFETY: not null; a tensor map has 128 bytes.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    Ok(())
}

/// Encodes a map of a picture laid out by columns.
///
/// # Safety
/// `out` is null or valid for a tensor map.
unsafe fn im2col<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUtensorMap,
    map: &Im2colMap<'_>,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null())?;
    let bytes = here.note(process.backend.tensor_map_im2col(here.id, map))?;
    // SAFETY: not null; a tensor map has 128 bytes.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    Ok(())
}

pub unsafe fn cuTensorMapEncodeIm2col<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUtensorMap,
    data_type: CUtensorMapDataType,
    rank: cuuint32_t,
    address: *mut c_void,
    dims: *const cuuint64_t,
    strides: *const cuuint64_t,
    lower: *const c_int,
    upper: *const c_int,
    channels: cuuint32_t,
    pixels: cuuint32_t,
    element_strides: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Result<()> {
    require((MIN_IM2COL_RANK..=MAX_RANK).contains(&rank))?;
    let rank = rank as usize;
    // SAFETY: the program gives arrays of these lengths, and an out parameter.
    unsafe {
        let map = Im2colMap {
            data_type: data_type.0,
            address: DevicePtr(address as u64),
            dims: slice(dims, rank)?,
            strides: slice(strides, rank - 1)?,
            lower: slice(lower, rank - 2)?,
            upper: slice(upper, rank - 2)?,
            channels_and_pixels: (channels, pixels),
            element_strides: slice(element_strides, rank)?,
            interleave: interleave.0,
            wide: None,
            swizzle: swizzle.0,
            promotion: promotion.0,
            fill: fill.0,
        };
        im2col(process, out, &map)
    }
}

pub unsafe fn cuTensorMapEncodeIm2colWide<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUtensorMap,
    data_type: CUtensorMapDataType,
    rank: cuuint32_t,
    address: *mut c_void,
    dims: *const cuuint64_t,
    strides: *const cuuint64_t,
    lower: c_int,
    upper: c_int,
    channels: cuuint32_t,
    pixels: cuuint32_t,
    element_strides: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    mode: CUtensorMapIm2ColWideMode,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Result<()> {
    require((MIN_IM2COL_RANK..=MAX_RANK).contains(&rank))?;
    let rank = rank as usize;
    // SAFETY: the program gives arrays of these lengths, and an out parameter.
    unsafe {
        let map = Im2colMap {
            data_type: data_type.0,
            address: DevicePtr(address as u64),
            dims: slice(dims, rank)?,
            strides: slice(strides, rank - 1)?,
            lower: &[lower],
            upper: &[upper],
            channels_and_pixels: (channels, pixels),
            element_strides: slice(element_strides, rank)?,
            interleave: interleave.0,
            wide: Some(mode.0),
            swizzle: swizzle.0,
            promotion: promotion.0,
            fill: fill.0,
        };
        im2col(process, out, &map)
    }
}

/// The first word of a map is the tensor's address, which lies at a multiple of 16: so drivers of
/// today encode it.
pub unsafe fn cuTensorMapReplaceAddress<B: Backend>(
    process: &'static Process<B>,
    map: *mut CUtensorMap,
    address: *mut c_void,
) -> Result<()> {
    context::current(process)?;
    require((address as u64).is_multiple_of(16))?;
    // SAFETY: null or the program's structure.
    let map = unsafe { map.as_mut() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    map.opaque[0] = address as u64;
    Ok(())
}
