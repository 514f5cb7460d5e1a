//! Primary contexts.

use core::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering;

use outboard_abi::{CUcontext, CUdevice};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::context::primary::primary;
use crate::context::{Context, FLAGS};
use crate::process::{Front, Process};
use crate::state;

fn primary_of(front: &'static Front, dev: CUdevice) -> Result<&'static Context> {
    primary(front, state::device(front, dev)?.0)
}

pub unsafe fn cuDevicePrimaryCtxRetain<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUcontext,
    dev: CUdevice,
) -> Result<()> {
    let context = primary_of(process, dev)?;
    require(!out.is_null())?;
    context.retain(process)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub unsafe fn cuDevicePrimaryCtxRelease<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
) -> Result<()> {
    primary_of(process, dev)?.release(process)
}

pub unsafe fn cuDevicePrimaryCtxRelease_v2<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxRelease(process, dev) }
}

pub unsafe fn cuDevicePrimaryCtxReset<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
) -> Result<()> {
    let context = primary_of(process, dev)?;
    // Its users keep what they have retained, and release it as before. The next one that retains
    // it has it begin anew, for all of them.
    let _users = context.users.lock();
    context.stop(process)
}

pub unsafe fn cuDevicePrimaryCtxReset_v2<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxReset(process, dev) }
}

pub unsafe fn cuDevicePrimaryCtxGetState<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Result<()> {
    let context = primary_of(process, dev)?;
    require(!flags.is_null() && !active.is_null())?;
    // SAFETY: the program's out parameters.
    unsafe {
        put(flags, context.flags.load(Ordering::Relaxed))?;
        put(active, c_int::from(context.is_active()))
    }
}

pub unsafe fn cuDevicePrimaryCtxSetFlags<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
    flags: c_uint,
) -> Result<()> {
    let context = primary_of(process, dev)?;
    require(flags & !FLAGS == 0)?;
    context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub unsafe fn cuDevicePrimaryCtxSetFlags_v2<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxSetFlags(process, dev, flags) }
}
