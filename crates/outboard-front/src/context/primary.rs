//! Primary contexts: one of each device, for whoever retains it.

use core::ffi::{c_int, c_uint};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use outboard_abi::{CUcontext, CUdevice, CUresult};

use super::stack::top;
use super::{Context, FLAGS, Here, new};
use crate::Driver;
use crate::backend::Result;
use crate::border::{put, require};
use crate::state::{self, ready};

static PRIMARY: OnceLock<Vec<&'static Context>> = OnceLock::new();

/// Gives every visible device its primary context, not active yet.
pub(crate) fn init() {
    let Ok(state) = ready() else { return };
    PRIMARY.get_or_init(|| (0..state.devices.len()).filter_map(|device| new(device, true, 0, 0)).collect());
}

/// The primary context of a visible device.
pub(crate) fn primary(device: usize) -> Result<&'static Context> {
    PRIMARY.get().and_then(|all| all.get(device)).copied().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
}

fn primary_of(dev: CUdevice) -> Result<&'static Context> {
    primary(state::device(dev)?.0)
}

/// The current context or, without one, the first device's primary one, which becomes active for it.
pub(crate) fn current_or_first<D: Driver>() -> Result<Here> {
    if let Some(context) = top() {
        return context.live();
    }
    let context = primary(0)?;
    let _users = context.users.lock();
    if context.id.load(Ordering::Acquire) == 0 {
        context.start::<D>()?;
    }
    context.live()
}

pub(crate) unsafe fn cuDevicePrimaryCtxRetain<D: Driver>(out: *mut CUcontext, dev: CUdevice) -> Result<()> {
    let context = primary_of(dev)?;
    require(!out.is_null())?;
    context.retain::<D>()?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease<D: Driver>(dev: CUdevice) -> Result<()> {
    primary_of(dev)?.release::<D>()
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2<D: Driver>(dev: CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxRelease::<D>(dev) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset<D: Driver>(dev: CUdevice) -> Result<()> {
    let context = primary_of(dev)?;
    let users = context.users.lock();
    context.stop::<D>()?;
    // Who still holds it finds a fresh one under the same handle.
    if *users > 0 { context.start::<D>() } else { Ok(()) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2<D: Driver>(dev: CUdevice) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxReset::<D>(dev) }
}

pub(crate) unsafe fn cuDevicePrimaryCtxGetState<D: Driver>(
    dev: CUdevice,
    flags: *mut c_uint,
    active: *mut c_int,
) -> Result<()> {
    let context = primary_of(dev)?;
    require(!flags.is_null() && !active.is_null())?;
    // SAFETY: the program's out parameters.
    unsafe {
        put(flags, context.flags.load(Ordering::Relaxed))?;
        put(active, c_int::from(context.id.load(Ordering::Acquire) != 0))
    }
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags<D: Driver>(dev: CUdevice, flags: c_uint) -> Result<()> {
    let context = primary_of(dev)?;
    require(flags & !FLAGS == 0)?;
    context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2<D: Driver>(dev: CUdevice, flags: c_uint) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDevicePrimaryCtxSetFlags::<D>(dev, flags) }
}
