//! Properties and limits of a context, and waiting for it.

use core::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use outboard_abi::{
    CUcontext, CUdevice, CUexecAffinityParam, CUexecAffinityType, CUfunc_cache, CUlimit, CUresult,
    CUsharedconfig,
};

use crate::backend::{Backend, Result};
use crate::border::{put, put_if, require};
use crate::context::{FLAGS, current, named};
use crate::process::Process;

/// The version that `cuCtxGetApiVersion` gives for contexts of today's interface.
const CONTEXT_API: c_uint = 3020;

/// `CU_CTX_MAP_HOST`.
const MAP_HOST: u32 = 8;

pub unsafe fn cuCtxGetDevice<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdevice,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxGetDevice_v2(process, out, core::ptr::null_mut()) }
}

pub unsafe fn cuCtxGetDevice_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdevice,
    ctx: CUcontext,
) -> Result<()> {
    let context = named(process, ctx)?;
    if context.destroyed.load(Ordering::Acquire) {
        return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.device as CUdevice) }
}

pub unsafe fn cuCtxGetFlags<B: Backend>(
    process: &'static Process<B>,
    flags: *mut c_uint,
) -> Result<()> {
    let context = named(process, core::ptr::null_mut())?;
    let mut found = context.flags.load(Ordering::Relaxed);
    // A primary context maps page-locked memory, whether it was asked to or not.
    if context.primary {
        found = if context.is_active() { found | MAP_HOST } else { 0 };
    }
    // SAFETY: the program's out parameter.
    unsafe { put(flags, found) }
}

pub unsafe fn cuCtxSetFlags<B: Backend>(process: &'static Process<B>, flags: c_uint) -> Result<()> {
    require(flags & !FLAGS == 0 && flags & 7 != 3)?;
    current(process)?.context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub unsafe fn cuCtxGetId<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
    out: *mut u64,
) -> Result<()> {
    let here = named(process, ctx)?.open()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, here.number()) }
}

pub unsafe fn cuCtxGetApiVersion<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
    version: *mut c_uint,
) -> Result<()> {
    named(process, ctx)?;
    // SAFETY: the program's out parameter.
    unsafe { put(version, CONTEXT_API) }
}

pub unsafe fn cuCtxGetExecAffinity<B: Backend>(
    process: &'static Process<B>,
    _out: *mut CUexecAffinityParam,
    _kind: CUexecAffinityType,
) -> Result<()> {
    current(process)?;
    Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
}

pub unsafe fn cuCtxGetStreamPriorityRange<B: Backend>(
    process: &'static Process<B>,
    least: *mut c_int,
    greatest: *mut c_int,
) -> Result<()> {
    let (low, high) = current(process)?.device()?.stream_priorities;
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(least, low);
        put_if(greatest, high);
    }
    Ok(())
}

pub unsafe fn cuCtxGetCacheConfig<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUfunc_cache,
) -> Result<()> {
    let config = current(process)?.context.cache_config.load(Ordering::Relaxed);
    // SAFETY: the program's out parameter.
    unsafe { put(out, outboard_abi::CUfunc_cache_enum(config)) }
}

pub unsafe fn cuCtxSetCacheConfig<B: Backend>(
    process: &'static Process<B>,
    config: CUfunc_cache,
) -> Result<()> {
    require(config.0 <= 3)?;
    // A preference only; devices of today choose by what a kernel uses.
    current(process)?.context.cache_config.store(config.0, Ordering::Relaxed);
    Ok(())
}

pub unsafe fn cuCtxGetSharedMemConfig<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUsharedconfig,
) -> Result<()> {
    current(process)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE) }
}

pub unsafe fn cuCtxSetSharedMemConfig<B: Backend>(
    process: &'static Process<B>,
    config: CUsharedconfig,
) -> Result<()> {
    require(config.0 <= 2)?;
    current(process)?;
    // Without effect since Maxwell: banks are four bytes wide.
    Ok(())
}

pub unsafe fn cuCtxResetPersistingL2Cache<B: Backend>(process: &'static Process<B>) -> Result<()> {
    current(process).map(|_| ())
}

pub unsafe fn cuCtxGetLimit<B: Backend>(
    process: &'static Process<B>,
    value: *mut usize,
    limit: CUlimit,
) -> Result<()> {
    let here = current(process)?;
    require(!value.is_null())?;
    let ask = || here.note(process.backend.context_limit(here.id, limit.0));
    let found = here.context.limits.get(limit.0, ask)?;
    // SAFETY: the program's out parameter.
    unsafe { put(value, found as usize) }
}

pub unsafe fn cuCtxSetLimit<B: Backend>(
    process: &'static Process<B>,
    limit: CUlimit,
    value: usize,
) -> Result<()> {
    let here = current(process)?;
    crate::capture::refuse_unsafe(process)?;
    let outcome = here.note(process.backend.context_set_limit(here.id, limit.0, value as u64));
    here.context.limits.forget();
    outcome
}

pub unsafe fn cuCtxSynchronize<B: Backend>(process: &'static Process<B>) -> Result<()> {
    let here = current(process)?;
    crate::capture::refuse_context(process, &here)?;
    here.pay()?;
    here.note(process.backend.context_synchronize(here.id))
}

pub unsafe fn cuCtxSynchronize_v2<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
) -> Result<()> {
    let here = named(process, ctx)?.live()?;
    crate::capture::refuse_context(process, &here)?;
    here.pay()?;
    here.note(process.backend.context_synchronize(here.id))
}
