//! Launches.

use core::ffi::c_void;

use outboard_abi::{CUdevice_attribute as A, CUfunction, CUlaunchConfig, CUresult, CUstream};

use crate::backend::{Backend, Launch, Result};
use crate::border::slice;
use crate::capture;
use crate::context::Here;
use crate::device::value;
use crate::function::Function;
use crate::launch_attributes::Extras;
use crate::launch_check::{Shape, check, share_params, with_params};
use crate::process::{Front, Process};
use crate::stream;

/// All blocks of a cooperative launch must be resident at once.
fn check_resident<B: Backend>(
    process: &'static Process<B>,
    shape: &Shape,
    function: &Function,
    here: &Here,
) -> Result<()> {
    let threads = shape.block.iter().product();
    let each = crate::occupancy::blocks(process, function, threads, shape.shared as usize, 0)?;
    let processors = value(here.device()?, A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    let blocks: u64 = shape.grid.iter().map(|dim| u64::from(*dim)).product();
    if blocks > each.max(0) as u64 * processors.max(0) as u64 {
        return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    Ok(())
}

/// # Safety
/// As of [`with_params`].
pub(crate) unsafe fn launch<B: Backend>(
    process: &'static Process<B>,
    f: CUfunction,
    shape: &Shape,
    stream: CUstream,
    params: *const *mut c_void,
    extra: *const *mut c_void,
    extras: &Extras,
) -> Result<()> {
    let (here, stream) = stream::find(process, stream)?;
    if f.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    // A kernel that is named without a context is launched in the stream's.
    let function = crate::library::function_in(process, f, &here)?;
    if function.ctx != here.id {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let limits = here.limits()?;
    check(shape, &function, limits)?;
    if extras.cooperative {
        check_resident(process, shape, &function, &here)?;
    }
    let submit = |params: &[u8]| {
        if limits.beside_others {
            share_params(process, &function, &here, params)?;
        }
        let launch = Launch {
            function: function.id(),
            grid: shape.grid,
            block: shape.block,
            shared: shape.shared,
            params,
            cooperative: extras.cooperative,
            attributes: &extras.attributes,
        };
        if let Some(outcome) = capture::kernel(process, &here, stream, f as u64, &launch) {
            return outcome;
        }
        here.note(process.backend.launch(here.id, &launch, stream))?;
        if process.state.ready()?.settings.launches_wait {
            return here.note(process.backend.stream_synchronize(here.id, stream));
        }
        Ok(())
    };
    // SAFETY: by the contract above.
    unsafe { with_params(&function, params, extra, submit) }
}

/// Asks something of a launch that is not made: its shape and attributes count, its parameters do
/// not.
///
/// # Safety
/// `config` is null or the program's structure.
pub(crate) unsafe fn ask<B: Backend, T>(
    process: &'static Process<B>,
    f: CUfunction,
    config: *const CUlaunchConfig,
    question: impl FnOnce(&Function, &Here, &Launch<'_>) -> Result<T>,
) -> Result<T> {
    // SAFETY: by the contract above.
    let config = unsafe { config.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let function = crate::library::function(process, f)?;
    let here = function.live()?;
    // SAFETY: by the contract above.
    let extras = unsafe { extras(process, config) }?;
    let launch = Launch {
        function: function.id(),
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
        params: &[],
        cooperative: extras.cooperative,
        attributes: &extras.attributes,
    };
    question(&function, &here, &launch)
}

/// Reads the attributes of a launch.
///
/// # Safety
/// `config.attrs` has `config.numAttrs` elements.
pub(crate) unsafe fn extras(front: &'static Front, config: &CUlaunchConfig) -> Result<Extras> {
    // SAFETY: by the contract above.
    Extras::new(front, unsafe { slice(config.attrs, config.numAttrs as usize) }?)
}
