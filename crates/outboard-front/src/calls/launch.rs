//! Launches.

use core::ffi::{c_uint, c_void};

use outboard_abi::{CUfunction, CUlaunchConfig, CUresult, CUstream};

use crate::backend::{Backend, Result};
use crate::launch::{extras, launch};
use crate::launch_attributes::Extras;
use crate::launch_check::Shape;
use crate::process::Process;
use crate::stream::{self, DefaultStream};

pub use super::function::{cuLaunch, cuLaunchGrid, cuLaunchGridAsync};

pub unsafe fn cuLaunchKernel<B: Backend>(
    process: &'static Process<B>,
    f: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<()> {
    let shape =
        Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
    // SAFETY: the program's parameters.
    unsafe { launch(process, f, &shape, stream, params, extra, &Extras::default()) }
}

pub unsafe fn cuLaunchCooperativeKernel<B: Backend>(
    process: &'static Process<B>,
    f: CUfunction,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
) -> Result<()> {
    let shape =
        Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
    let extras = Extras { cooperative: true, ..Extras::default() };
    // SAFETY: the program's parameters.
    unsafe { launch(process, f, &shape, stream, params, core::ptr::null(), &extras) }
}

pub unsafe fn cuLaunchKernelEx<B: Backend>(
    process: &'static Process<B>,
    config: *const CUlaunchConfig,
    f: CUfunction,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let config = unsafe { config.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let shape = Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
    };
    let stream = match default {
        DefaultStream::Legacy => config.hStream,
        DefaultStream::PerThread => stream::or_per_thread(config.hStream),
    };
    // SAFETY: the program's structure and parameters.
    unsafe { launch(process, f, &shape, stream, params, extra, &extras(process, config)?) }
}
