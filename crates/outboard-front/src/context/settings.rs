//! What a context is, what it may use, and waiting for it.

use core::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use outboard_abi::{
    CUcontext, CUdevice, CUexecAffinityParam, CUexecAffinityType, CUfunc_cache, CUlimit, CUresult, CUsharedconfig,
};

use super::{FLAGS, current, named};
use crate::Driver;
use crate::backend::Result;
use crate::border::{put, put_if, require};

/// The version that `cuCtxGetApiVersion` gives for contexts of today's interface.
const CONTEXT_API: c_uint = 3020;

pub(crate) unsafe fn cuCtxGetDevice<D: Driver>(out: *mut CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxGetDevice_v2::<D>(out, core::ptr::null_mut()) }
}

pub(crate) unsafe fn cuCtxGetDevice_v2<D: Driver>(out: *mut CUdevice, ctx: CUcontext) -> Result<()> {
    let context = named(ctx)?;
    if context.destroyed.load(Ordering::Acquire) {
        return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.device as CUdevice) }
}

pub(crate) unsafe fn cuCtxGetFlags<D: Driver>(flags: *mut c_uint) -> Result<()> {
    let context = named(core::ptr::null_mut())?;
    // SAFETY: the program's out parameter.
    unsafe { put(flags, context.flags.load(Ordering::Relaxed)) }
}

pub(crate) unsafe fn cuCtxSetFlags<D: Driver>(flags: c_uint) -> Result<()> {
    require(flags & !FLAGS == 0 && flags & 7 != 3)?;
    current()?.context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetId<D: Driver>(ctx: CUcontext, out: *mut u64) -> Result<()> {
    let here = named(ctx)?.open()?;
    let id = here.green().map_or(u64::from(here.id.0), |green| green.handle);
    // SAFETY: the program's out parameter.
    unsafe { put(out, id) }
}

pub(crate) unsafe fn cuCtxGetApiVersion<D: Driver>(ctx: CUcontext, version: *mut c_uint) -> Result<()> {
    named(ctx)?;
    // SAFETY: the program's out parameter.
    unsafe { put(version, CONTEXT_API) }
}

pub(crate) unsafe fn cuCtxGetExecAffinity<D: Driver>(
    _out: *mut CUexecAffinityParam,
    _kind: CUexecAffinityType,
) -> Result<()> {
    current()?;
    Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
}

pub(crate) unsafe fn cuCtxGetStreamPriorityRange<D: Driver>(least: *mut c_int, greatest: *mut c_int) -> Result<()> {
    let (low, high) = current()?.device()?.stream_priorities;
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(least, low);
        put_if(greatest, high);
    }
    Ok(())
}

pub(crate) unsafe fn cuCtxGetCacheConfig<D: Driver>(out: *mut CUfunc_cache) -> Result<()> {
    let config = current()?.context.cache_config.load(Ordering::Relaxed);
    // SAFETY: the program's out parameter.
    unsafe { put(out, outboard_abi::CUfunc_cache_enum(config)) }
}

pub(crate) unsafe fn cuCtxSetCacheConfig<D: Driver>(config: CUfunc_cache) -> Result<()> {
    require(config.0 <= 3)?;
    // A preference only; devices of today choose by what a kernel uses.
    current()?.context.cache_config.store(config.0, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuCtxGetSharedMemConfig<D: Driver>(out: *mut CUsharedconfig) -> Result<()> {
    current()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUsharedconfig::CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE) }
}

pub(crate) unsafe fn cuCtxSetSharedMemConfig<D: Driver>(config: CUsharedconfig) -> Result<()> {
    require(config.0 <= 2)?;
    current()?;
    // Without effect since Maxwell: banks are four bytes wide.
    Ok(())
}

pub(crate) unsafe fn cuCtxResetPersistingL2Cache<D: Driver>() -> Result<()> {
    current().map(|_| ())
}

pub(crate) unsafe fn cuCtxGetLimit<D: Driver>(value: *mut usize, limit: CUlimit) -> Result<()> {
    let here = current()?;
    require(!value.is_null())?;
    let ask = || here.note(D::get().context_limit(here.id, limit.0));
    let found = here.context.limits.get(limit.0, ask)?;
    // SAFETY: the program's out parameter.
    unsafe { put(value, found as usize) }
}

pub(crate) unsafe fn cuCtxSetLimit<D: Driver>(limit: CUlimit, value: usize) -> Result<()> {
    let here = current()?;
    crate::capture::refuse_unsafe()?;
    let outcome = here.note(D::get().context_set_limit(here.id, limit.0, value as u64));
    here.context.limits.forget();
    outcome
}

pub(crate) unsafe fn cuCtxSynchronize<D: Driver>() -> Result<()> {
    let here = current()?;
    crate::capture::refuse_context(&here)?;
    here.pay()?;
    here.note(D::get().context_synchronize(here.id))
}

pub(crate) unsafe fn cuCtxSynchronize_v2<D: Driver>(ctx: CUcontext) -> Result<()> {
    let here = named(ctx)?.live()?;
    crate::capture::refuse_context(&here)?;
    here.pay()?;
    here.note(D::get().context_synchronize(here.id))
}
