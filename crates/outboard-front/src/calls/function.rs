//! Functions.

mod configured;

use core::ffi::{c_char, c_int};

use outboard_abi::{
    CUfunc_cache, CUfunction, CUfunction_attribute, CUfunctionLoadingState, CUmodule,
    CUsharedconfig,
};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::function::param;
use crate::process::Process;

pub use configured::*;

pub unsafe fn cuFuncGetAttribute<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_int,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.attribute(attribute)?) }
}

pub unsafe fn cuFuncSetAttribute<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: c_int,
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    let here = function.live()?;
    function.set_attribute(process, &here, attribute, value)
}

pub unsafe fn cuFuncSetCacheConfig<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    config: CUfunc_cache,
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    let here = function.live()?;
    require(config.0 <= 3)?;
    here.note(process.backend.function_set_cache_config(here.id, function.id(), config.0))?;
    function.answers.forget();
    Ok(())
}

pub unsafe fn cuFuncSetSharedMemConfig<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    config: CUsharedconfig,
) -> Result<()> {
    crate::library::function(process, function)?;
    // Without effect since Maxwell: banks are four bytes wide.
    require(config.0 <= 2)
}

pub unsafe fn cuFuncGetModule<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmodule,
    function: CUfunction,
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.module as CUmodule) }
}

pub unsafe fn cuFuncGetName<B: Backend>(
    process: &'static Process<B>,
    out: *mut *const c_char,
    function: CUfunction,
) -> Result<()> {
    require(!function.is_null())?;
    let function = crate::library::function(process, function)?;
    // The name lives as long as the function's handle: the table keeps it.
    // SAFETY: the program's out parameter.
    unsafe { put(out, function.name.as_ptr()) }
}

pub unsafe fn cuFuncGetParamInfo<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Result<()> {
    let function = crate::library::function(process, function)?;
    // SAFETY: as this function's.
    unsafe { param(&function, index, offset, size) }
}

pub unsafe fn cuFuncIsLoaded<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfunctionLoadingState,
    function: CUfunction,
) -> Result<()> {
    crate::library::function(process, function)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED) }
}

pub unsafe fn cuFuncLoad<B: Backend>(
    process: &'static Process<B>,
    function: CUfunction,
) -> Result<()> {
    crate::library::function(process, function).map(|_| ())
}
