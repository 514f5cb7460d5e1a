//! What the process knows once `cuInit` has worked.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUdevice, CUresult};
use outboard_wire::platform::Device;
use parking_lot::Mutex;

use crate::backend::{Backend, Result};

/// The devices that the program sees.
pub(crate) struct State {
    pub(crate) driver_version: u32,
    pub(crate) devices: Vec<Device>,
}

static STATE: OnceLock<State> = OnceLock::new();
static INIT: Mutex<()> = Mutex::new(());
static FORKED: AtomicBool = AtomicBool::new(false);

/// The version reported before `cuInit`, and the newest interface that is offered.
pub(crate) const API_VERSION: u32 = outboard_abi::CUDA_VERSION;

/// Finds the devices, once. A failure is not kept: the next `cuInit` tries again.
pub(crate) fn init<B: Backend>() -> Result<()> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    if STATE.get().is_some() {
        return Ok(());
    }
    let _one_at_a_time = INIT.lock();
    if STATE.get().is_some() {
        return Ok(());
    }
    quiet_panics();
    let platform = B::get().platform()?;
    let variable = |name| std::env::var(name).ok();
    let devices = crate::visible::select(
        platform.devices,
        variable("CUDA_DEVICE_ORDER").as_deref(),
        variable("CUDA_VISIBLE_DEVICES").as_deref(),
    );
    if devices.is_empty() {
        return Err(CUresult::CUDA_ERROR_NO_DEVICE);
    }
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    crate::stats::at_exit::<B>();
    let _ = STATE.set(State { driver_version: platform.driver_version.min(API_VERSION), devices });
    crate::context::init();
    Ok(())
}

/// A forked child shares no connection and no thread with its parent: like the native driver, we do nothing there.
extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Whether this process was forked from one that uses the library.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The state, or `CUDA_ERROR_NOT_INITIALIZED`.
pub(crate) fn ready() -> Result<&'static State> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    STATE.get().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
}

/// The device of an ordinal that the program gave.
pub(crate) fn device(ordinal: CUdevice) -> Result<(usize, &'static Device)> {
    let state = ready()?;
    let index = usize::try_from(ordinal).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    let device = state.devices.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    Ok((index, device))
}

/// Panics are caught at the border; their message would be noise in somebody else's program. The hook is this library's own, since its
/// copy of the standard library is.
fn quiet_panics() {
    if std::env::var_os("OUTBOARD_PANICS").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
}
