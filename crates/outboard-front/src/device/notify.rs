//! Notifications of a device: it has none to give, but programs may ask for them.

use core::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

use outboard_abi::{CUasyncCallback, CUasyncCallbackHandle, CUdevice, CUresult};
use parking_lot::Mutex;

use crate::Driver;
use crate::backend::Result;
use crate::border::{put, require};
use crate::state;

/// Handles of those who wait, and their devices.
static WAITING: Mutex<Vec<(usize, CUdevice)>> = Mutex::new(Vec::new());
/// Multiples of 16, never used again.
static NEXT: AtomicUsize = AtomicUsize::new(0x1_0000);

pub(crate) unsafe fn cuDeviceRegisterAsyncNotification<D: Driver>(
    device: CUdevice,
    function: CUasyncCallback,
    _data: *mut c_void,
    out: *mut CUasyncCallbackHandle,
) -> Result<()> {
    state::device(device)?;
    require(function.is_some() && !out.is_null())?;
    // The one kind there is tells of a memory budget, which no device here sets: the function is never called.
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    WAITING.lock().push((handle, device));
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUasyncCallbackHandle) }
}

pub(crate) unsafe fn cuDeviceUnregisterAsyncNotification<D: Driver>(
    device: CUdevice,
    handle: CUasyncCallbackHandle,
) -> Result<()> {
    state::device(device)?;
    let mut waiting = WAITING.lock();
    let at = waiting.iter().position(|one| *one == (handle as usize, device));
    waiting.remove(at.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?);
    Ok(())
}
