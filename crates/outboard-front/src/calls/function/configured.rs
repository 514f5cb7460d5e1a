//! The launch interface of before CUDA 4.

use core::ffi::{c_int, c_uint, c_void};

use outboard_abi::{CUfunction, CUstream};

use crate::backend::{Backend, Result};
use crate::border::{require, slice};
use crate::process::Process;

/// Kernels have no more parameters than this, in bytes.
const MOST_PARAMS: usize = 32 << 10;

/// Writes `bytes` into the parameters of the next launch.
fn set<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    offset: c_int,
    bytes: &[u8],
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = start.saturating_add(bytes.len());
    require(end <= MOST_PARAMS)?;
    let mut next = function.next.lock();
    if next.params.len() < end {
        next.params.resize(end, 0);
    }
    next.params[start..end].copy_from_slice(bytes);
    Ok(())
}

pub unsafe fn cuFuncSetBlockShape<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    x: c_int,
    y: c_int,
    z: c_int,
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    require(x > 0 && y > 0 && z > 0)?;
    function.next.lock().block = [x as u32, y as u32, z as u32];
    Ok(())
}

pub unsafe fn cuFuncSetSharedSize<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    bytes: c_uint,
) -> Result<()> {
    crate::library::function(process, function)?.next.lock().shared = bytes;
    Ok(())
}

pub unsafe fn cuParamSetSize<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    bytes: c_uint,
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    require(bytes as usize <= MOST_PARAMS)?;
    function.next.lock().params.resize(bytes as usize, 0);
    Ok(())
}

pub unsafe fn cuParamSeti<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    offset: c_int,
    value: c_uint,
) -> Result<()> {
    set(process, function, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetf<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    offset: c_int,
    value: f32,
) -> Result<()> {
    set(process, function, offset, &value.to_ne_bytes())
}

pub unsafe fn cuParamSetv<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    offset: c_int,
    data: *mut c_void,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: the program's bytes.
    set(process, function, offset, unsafe {
        slice(data.cast::<u8>().cast_const(), bytes as usize)
    }?)
}

/// Launches with what was set; parameters go as one buffer.
fn launch<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> Result<()> {
    require(width > 0 && height > 0)?;
    let mut next = crate::library::function(process, function)?.next.lock().clone();
    let mut bytes = next.params.len();
    // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END.
    let mut extra: [*mut c_void; 5] = [
        core::ptr::without_provenance_mut(1),
        next.params.as_mut_ptr().cast(),
        core::ptr::without_provenance_mut(2),
        (&raw mut bytes).cast(),
        core::ptr::null_mut(),
    ];
    let ([x, y, z], shared) = (next.block, next.shared);
    let (width, height) = (width as u32, height as u32);
    // SAFETY: the parameters are in the buffer that `extra` names, alive during the call.
    unsafe {
        crate::calls::launch::cuLaunchKernel(
            process,
            function,
            width,
            height,
            1,
            x,
            y,
            z,
            shared,
            stream,
            core::ptr::null_mut(),
            extra.as_mut_ptr(),
        )
    }
}

pub unsafe fn cuLaunch<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
) -> Result<()> {
    launch(process, function, 1, 1, core::ptr::null_mut())
}

pub unsafe fn cuLaunchGrid<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    width: c_int,
    height: c_int,
) -> Result<()> {
    launch(process, function, width, height, core::ptr::null_mut())
}

pub unsafe fn cuLaunchGridAsync<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    width: c_int,
    height: c_int,
    stream: CUstream,
) -> Result<()> {
    launch(process, function, width, height, stream)
}
