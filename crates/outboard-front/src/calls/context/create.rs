//! Contexts that the program makes and ends.

use core::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use outboard_abi::{CUcontext, CUctxCreateParams, CUdevice, CUexecAffinityParam, CUresult};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::context::stack::{pop, push, top};
use crate::context::{FLAGS, current, named, new};
use crate::process::Process;
use crate::state;

pub unsafe fn cuCtxCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
    flags: c_uint,
    dev: CUdevice,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxCreate_v2(process, out, flags, dev) }
}

pub unsafe fn cuCtxCreate_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
    flags: c_uint,
    dev: CUdevice,
) -> Result<()> {
    let (device, _) = state::device(process, dev)?;
    require(!out.is_null() && flags & !FLAGS == 0)?;
    let context =
        new(process, device, false, flags, 1).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = context.start(process) {
        process.contexts.table.remove(context.handle);
        return Err(error);
    }
    let handle = context.handle;
    push(context);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUcontext) }
}

pub unsafe fn cuCtxCreate_v3<B: Backend>(
    process: &'static Process<B>,
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
    unsafe { cuCtxCreate_v2(process, out, flags, dev) }
}

pub unsafe fn cuCtxCreate_v4<B: Backend>(
    process: &'static Process<B>,
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
    unsafe { cuCtxCreate_v2(process, out, flags, dev) }
}

pub unsafe fn cuCtxDestroy_v2<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
) -> Result<()> {
    require(!ctx.is_null())?;
    let context = named(process, ctx)?;
    if context.primary || context.green.is_some() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    process.contexts.table.remove(context.handle).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    context.destroyed.store(true, Ordering::Release);
    // Current to this thread: popped. Current to others: stays there, and its use is an error.
    if top().is_some_and(|top| std::ptr::eq(top, context)) {
        pop();
    }
    let _users = context.users.lock();
    context.stop(process)
}

pub unsafe fn cuCtxDestroy<B: Backend>(process: &'static Process<B>, ctx: CUcontext) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxDestroy_v2(process, ctx) }
}

pub unsafe fn cuCtxAttach<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
    flags: c_uint,
) -> Result<()> {
    require(flags == 0 && !out.is_null())?;
    let context = current(process)?.context;
    *context.users.lock() += 1;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub unsafe fn cuCtxDetach<B: Backend>(process: &'static Process<B>, ctx: CUcontext) -> Result<()> {
    let context = named(process, ctx)?;
    {
        let mut users = context.users.lock();
        if *users > 1 {
            *users -= 1;
            return Ok(());
        }
    }
    // SAFETY: as this function's.
    unsafe { cuCtxDestroy_v2(process, context.handle as CUcontext) }
}
