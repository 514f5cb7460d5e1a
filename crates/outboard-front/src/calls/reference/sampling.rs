//! How a reference is sampled.

use core::ffi::{c_int, c_uint};

use outboard_abi::{
    CUaddress_mode, CUaddress_mode_enum, CUfilter_mode, CUfilter_mode_enum, CUresult, CUtexref,
};

use super::{UNKNOWN, get, set};
use crate::backend::{Backend, ReferenceSetting as S, Result};
use crate::border::put;
use crate::process::Process;

fn dimension(dimension: c_int) -> Result<u32> {
    u32::try_from(dimension)
        .ok()
        .filter(|dimension| *dimension < 3)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub unsafe fn cuTexRefSetAddressMode<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    dim: c_int,
    mode: CUaddress_mode,
) -> Result<()> {
    set(process, reference, S::AddressMode(dimension(dim)?, mode.0)).map(drop)
}

pub unsafe fn cuTexRefGetAddressMode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUaddress_mode,
    reference: CUtexref,
    dim: c_int,
) -> Result<()> {
    let S::AddressMode(_, mode) = get(process, reference, S::AddressMode(dimension(dim)?, 0))?
    else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUaddress_mode_enum(mode)) }
}

pub unsafe fn cuTexRefSetFilterMode<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    mode: CUfilter_mode,
) -> Result<()> {
    set(process, reference, S::Filter(mode.0)).map(drop)
}

pub unsafe fn cuTexRefGetFilterMode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfilter_mode,
    reference: CUtexref,
) -> Result<()> {
    let S::Filter(mode) = get(process, reference, S::Filter(0))? else { return Err(UNKNOWN) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUfilter_mode_enum(mode)) }
}

pub unsafe fn cuTexRefSetMipmapFilterMode<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    mode: CUfilter_mode,
) -> Result<()> {
    set(process, reference, S::MipmapFilter(mode.0)).map(drop)
}

pub unsafe fn cuTexRefGetMipmapFilterMode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfilter_mode,
    reference: CUtexref,
) -> Result<()> {
    let S::MipmapFilter(mode) = get(process, reference, S::MipmapFilter(0))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUfilter_mode_enum(mode)) }
}

pub unsafe fn cuTexRefSetMipmapLevelBias<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    bias: f32,
) -> Result<()> {
    set(process, reference, S::MipmapBias(bias)).map(drop)
}

pub unsafe fn cuTexRefGetMipmapLevelBias<B: Backend>(
    process: &'static Process<B>,
    out: *mut f32,
    reference: CUtexref,
) -> Result<()> {
    let S::MipmapBias(bias) = get(process, reference, S::MipmapBias(0.0))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, bias) }
}

pub unsafe fn cuTexRefSetMipmapLevelClamp<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    least: f32,
    most: f32,
) -> Result<()> {
    set(process, reference, S::MipmapClamp(least, most)).map(drop)
}

pub unsafe fn cuTexRefGetMipmapLevelClamp<B: Backend>(
    process: &'static Process<B>,
    least: *mut f32,
    most: *mut f32,
    reference: CUtexref,
) -> Result<()> {
    let S::MipmapClamp(low, high) = get(process, reference, S::MipmapClamp(0.0, 0.0))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameters.
    unsafe {
        put(least, low)?;
        put(most, high)
    }
}

pub unsafe fn cuTexRefSetMaxAnisotropy<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    most: c_uint,
) -> Result<()> {
    set(process, reference, S::Anisotropy(most)).map(drop)
}

pub unsafe fn cuTexRefGetMaxAnisotropy<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    reference: CUtexref,
) -> Result<()> {
    let S::Anisotropy(most) = get(process, reference, S::Anisotropy(0))? else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, most as c_int) }
}

pub unsafe fn cuTexRefSetBorderColor<B: Backend>(
    process: &'static Process<B>,
    reference: CUtexref,
    colour: *mut f32,
) -> Result<()> {
    // SAFETY: null or the program's four numbers.
    let colour =
        unsafe { colour.cast::<[f32; 4]>().as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    set(process, reference, S::Border((colour[0], colour[1]), (colour[2], colour[3]))).map(drop)
}

pub unsafe fn cuTexRefGetBorderColor<B: Backend>(
    process: &'static Process<B>,
    out: *mut f32,
    reference: CUtexref,
) -> Result<()> {
    let S::Border(first, second) = get(process, reference, S::Border((0.0, 0.0), (0.0, 0.0)))?
    else {
        return Err(UNKNOWN);
    };
    // SAFETY: the program's room for four numbers.
    unsafe { put(out.cast(), [first.0, first.1, second.0, second.1]) }
}
