//! Tensor maps.

use core::ffi::c_void;

use outboard_abi::{CUresult, CUtensorMap};
use outboard_driver::{Table, call};
use outboard_wire::messages::*;

use crate::answer::Answer;
use crate::generated::dispatch::TensormapCommands;
use crate::worker::Worker;

/// Tensor maps must lie at multiples of 64.
#[repr(align(64))]
struct Aligned(CUtensorMap);

/// Encodes a map. The driver only writes the address down; kernels that use the map are checked by
/// the device.
fn im2col(table: &Table, m: &TensorMapIm2col) -> Result<[u8; 128], CUresult> {
    let rank = m.dims.len();
    let corners = if m.wide.is_empty() { rank.saturating_sub(2) } else { 1 };
    let fits = (3..=5).contains(&rank)
        && m.strides.len() + 1 == rank
        && m.element_strides.len() == rank
        && m.lower.len() == corners
        && m.upper.len() == corners;
    if !fits {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut map = Aligned(CUtensorMap { opaque: [0; 16] });
    let data_type = outboard_abi::CUtensorMapDataType_enum(m.data_type);
    let interleave = outboard_abi::CUtensorMapInterleave_enum(m.interleave);
    let swizzle = outboard_abi::CUtensorMapSwizzle_enum(m.swizzle);
    let promotion = outboard_abi::CUtensorMapL2promotion_enum(m.promotion);
    let fill = outboard_abi::CUtensorMapFloatOOBfill_enum(m.fill);
    let (channels, pixels) = m.channels_and_pixels;
    let (out, rank, address) = (&raw mut map.0, rank as u32, m.address.0 as *mut c_void);
    let (dims, strides, steps) = (m.dims.as_ptr(), m.strides.as_ptr(), m.element_strides.as_ptr());
    match m.wide.first() {
        Some(mode) => {
            let mode = outboard_abi::CUtensorMapIm2ColWideMode_enum(*mode);
            let (lower, upper) = (m.lower[0], m.upper[0]);
            call!(
                table,
                cuTensorMapEncodeIm2colWide(
                    out, data_type, rank, address, dims, strides, lower, upper, channels, pixels,
                    steps, interleave, mode, swizzle, promotion, fill,
                )
            )?;
        }
        None => {
            let (lower, upper) = (m.lower.as_ptr(), m.upper.as_ptr());
            call!(
                table,
                cuTensorMapEncodeIm2col(
                    out, data_type, rank, address, dims, strides, lower, upper, channels, pixels,
                    steps, interleave, swizzle, promotion, fill,
                )
            )?;
        }
    }
    let mut bytes = [0; 128];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(map.0.opaque) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    Ok(bytes)
}

impl TensormapCommands for Worker {
    fn tensor_map_im2col(&mut self, m: TensorMapIm2col, answer: Answer<TensorMapIm2col>) {
        let outcome = self.enter().and_then(|_| im2col(self.table, &m));
        answer.result(outcome.map(|map| TensorMapIm2colReply { map }));
    }
}
