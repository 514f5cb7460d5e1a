//! Notifications of a device.

use core::ffi::c_void;
use std::sync::atomic::Ordering;

use outboard_abi::{CUasyncCallback, CUasyncCallbackHandle, CUdevice, CUresult};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::process::Process;
use crate::state;

pub unsafe fn cuDeviceRegisterAsyncNotification<B: Backend>(
    process: &'static Process<B>,
    device: CUdevice,
    function: CUasyncCallback,
    _data: *mut c_void,
    out: *mut CUasyncCallbackHandle,
) -> Result<()> {
    state::device(process, device)?;
    require(function.is_some() && !out.is_null())?;
    // The only kind reports a memory budget, which no device here sets: the function is never
    // called.
    let handle = process.notifications.next.fetch_add(16, Ordering::Relaxed);
    process.notifications.waiting.lock().push((handle, device));
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUasyncCallbackHandle) }
}

pub unsafe fn cuDeviceUnregisterAsyncNotification<B: Backend>(
    process: &'static Process<B>,
    device: CUdevice,
    handle: CUasyncCallbackHandle,
) -> Result<()> {
    state::device(process, device)?;
    let mut waiting = process.notifications.waiting.lock();
    let at = waiting.iter().position(|one| *one == (handle as usize, device));
    waiting.remove(at.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?);
    Ok(())
}
