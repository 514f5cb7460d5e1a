//! Contexts that the program makes and ends.

use core::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use outboard_abi::{CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUresult};

use super::stack::{pop, push, top};
use super::{CONTEXTS, FLAGS, current, named, new};
use crate::Driver;
use crate::backend::Result;
use crate::border::{put, require};
use crate::state;

pub(crate) unsafe fn cuCtxCreate<D: Driver>(out: *mut CUcontext, flags: c_uint, dev: CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxCreate_v2::<D>(out, flags, dev) }
}

pub(crate) unsafe fn cuCtxCreate_v2<D: Driver>(out: *mut CUcontext, flags: c_uint, dev: CUdevice) -> Result<()> {
    let (device, _) = state::device(dev)?;
    require(!out.is_null() && flags & !FLAGS == 0)?;
    let context = new(device, false, flags, 1).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = context.start::<D>() {
        CONTEXTS.remove(context.handle);
        return Err(error);
    }
    let handle = context.handle;
    push(context);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUcontext) }
}

pub(crate) unsafe fn cuCtxCreate_v3<D: Driver>(
    out: *mut CUcontext,
    _params: *mut CUexecAffinityParam,
    num_params: c_int,
    flags: c_uint,
    dev: CUdevice,
) -> Result<()> {
    // A share of the multiprocessors needs MPS, which no device here reports.
    if num_params != 0 {
        return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    // SAFETY: as this function's.
    unsafe { cuCtxCreate_v2::<D>(out, flags, dev) }
}

pub(crate) unsafe fn cuCtxCreate_v4<D: Driver>(
    out: *mut CUcontext,
    params: *mut CUctxCreateParams,
    flags: c_uint,
    dev: CUdevice,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    if let Some(params) = unsafe { params.as_ref() } {
        if params.numExecAffinityParams != 0 {
            return Err(CUresult::CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        if !params.cigParams.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
    }
    // SAFETY: as this function's.
    unsafe { cuCtxCreate_v2::<D>(out, flags, dev) }
}

pub(crate) unsafe fn cuCtxDestroy_v2<D: Driver>(ctx: CUcontext) -> Result<()> {
    require(!ctx.is_null())?;
    let context = named(ctx)?;
    if context.primary || context.green.is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    CONTEXTS.remove(context.handle).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    context.destroyed.store(true, Ordering::Release);
    // Current to this thread: popped. Current to others: stays there, and its use is an error.
    if top().is_some_and(|top| std::ptr::eq(top, context)) {
        pop();
    }
    let _users = context.users.lock();
    context.stop::<D>()
}

pub(crate) unsafe fn cuCtxDestroy<D: Driver>(ctx: CUcontext) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxDestroy_v2::<D>(ctx) }
}

pub(crate) unsafe fn cuCtxAttach<D: Driver>(out: *mut CUcontext, flags: c_uint) -> Result<()> {
    require(flags == 0 && !out.is_null())?;
    let context = current()?.context;
    *context.users.lock() += 1;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub(crate) unsafe fn cuCtxDetach<D: Driver>(ctx: CUcontext) -> Result<()> {
    let context = named(ctx)?;
    {
        let mut users = context.users.lock();
        if *users > 1 {
            *users -= 1;
            return Ok(());
        }
    }
    // SAFETY: as this function's.
    unsafe { cuCtxDestroy_v2::<D>(context.handle as CUcontext) }
}
