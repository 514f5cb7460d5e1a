//! Tensor maps: layouts of tensors in the device's own format, which only its driver knows.

use core::ffi::c_void;

use outboard_abi::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle, cuuint32_t, cuuint64_t,
};

use crate::Driver;
use crate::backend::{Result, TiledMap};
use crate::border::{require, slice};
use crate::context;

/// Most dimensions of a tensor map.
const MAX_RANK: u32 = 5;

pub(crate) unsafe fn cuTensorMapEncodeTiled<D: Driver>(
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
    let here = context::current()?;
    require(!out.is_null() && (1..=MAX_RANK).contains(&rank))?;
    let rank = rank as usize;
    // SAFETY: the program gives arrays of these lengths.
    let map = unsafe {
        TiledMap {
            data_type: data_type.0,
            address: address as u64,
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
    let bytes = here.note(D::get().tensor_map_tiled(here.id, &map))?;
    // SAFETY: not null; a tensor map has 128 bytes.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), bytes.len()) };
    Ok(())
}
