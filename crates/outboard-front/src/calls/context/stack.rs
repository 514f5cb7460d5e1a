//! The calling thread's stack of contexts.

use outboard_abi::{CUcontext, CUresult};

use crate::backend::{Backend, Result};
use crate::border::{put, put_if, require};
use crate::context::named;
use crate::context::stack::{pop, push, top};
use crate::process::Process;
use crate::state::ready;

pub unsafe fn cuCtxPushCurrent_v2<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
) -> Result<()> {
    ready(process)?;
    require(!ctx.is_null())?;
    push(named(process, ctx)?);
    Ok(())
}

pub unsafe fn cuCtxPushCurrent<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxPushCurrent_v2(process, ctx) }
}

pub unsafe fn cuCtxPopCurrent_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
) -> Result<()> {
    ready(process)?;
    let context = pop().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    // SAFETY: the program's out parameter, which may be left out.
    unsafe { put_if(out, context.handle as CUcontext) };
    Ok(())
}

pub unsafe fn cuCtxPopCurrent<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuCtxPopCurrent_v2(process, out) }
}

pub unsafe fn cuCtxSetCurrent<B: Backend>(
    process: &'static Process<B>,
    ctx: CUcontext,
) -> Result<()> {
    ready(process)?;
    // A primary context may be made current before anybody has retained it: the runtime does.
    let context = if ctx.is_null() { None } else { Some(named(process, ctx)?) };
    pop();
    if let Some(context) = context {
        push(context);
    }
    Ok(())
}

pub unsafe fn cuCtxGetCurrent<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
) -> Result<()> {
    ready(process)?;
    let handle = top().map_or(0, |context| context.handle);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUcontext) }
}
