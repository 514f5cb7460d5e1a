//! State of the process after a successful `cuInit`.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Once};

use outboard_abi::{CUdevice, CUresult};
use outboard_wire::platform::{Device, Platform};

use crate::backend::{Backend, DeviceId, Result};
use crate::gone;
use crate::process::{Front, Process};

pub(crate) use crate::gone::is_forked;
pub(crate) use crate::parts::state::{Interface, Ready};

/// The version to offer before the device's driver version is known.
static EVERYTHING: LazyLock<Interface> =
    LazyLock::new(|| Interface { version: API_VERSION, lacks: HashSet::default() });

/// The newest interface that is offered.
pub(crate) const API_VERSION: u32 = outboard_abi::CUDA_VERSION;

/// Finds the devices, once. A failure is not kept: the next `cuInit` tries again.
pub(crate) fn init<B: Backend>(process: &'static Process<B>) -> Result<()> {
    gone::check()?;
    if process.state.ready.get().is_some() {
        return Ok(());
    }
    let _one_at_a_time = process.state.init.lock();
    if process.state.ready.get().is_some() {
        return Ok(());
    }
    quiet_panics();
    let platform = platform(process)?;
    let variable = |name: &str| std::env::var(name).ok();
    let offered = platform.devices.len();
    let devices = crate::visible::select(
        platform.devices,
        variable("CUDA_DEVICE_ORDER").as_deref(),
        variable("CUDA_VISIBLE_DEVICES").as_deref(),
    )?;
    if devices.is_empty() {
        process.backend.all_hidden(offered);
        return Err(CUresult::CUDA_ERROR_NO_DEVICE);
    }
    // One for all values of `Process`: while glibc's list of handlers grows, another thread that
    // forks may call what is none (seen with 2.36).
    static HANDLER: Once = Once::new();
    // SAFETY: the handlers only store to atomics.
    HANDLER.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
        libc::atexit(exiting);
    });
    crate::profile::start(process.hooks.map(|hooks| hooks.at_exit));
    let limits = devices.iter().map(|device| crate::device::Limits::of(device, &devices)).collect();
    let _ = process.state.ready.set(Ready {
        driver_version: platform.driver_version.min(API_VERSION),
        limits,
        devices,
        settings: crate::variables::Settings::read(variable),
    });
    Ok(())
}

/// The devices and their driver, asked once in a process.
fn platform<B: Backend>(process: &'static Process<B>) -> Result<Platform> {
    let mut found = process.state.found.lock();
    let own = std::process::id();
    if let Some((of, platform)) = &*found
        && *of == own
    {
        return Ok(platform.clone());
    }
    let front: &'static Front = process;
    process.backend.attach(front);
    let platform = crate::profile::waited(|| process.backend.platform())?;
    let version = platform.driver_version.min(API_VERSION);
    let _ = process
        .state
        .interface
        .set(Interface { version, lacks: platform.lacks.iter().cloned().collect() });
    *found = Some((own, platform.clone()));
    Ok(platform)
}

/// Which functions there are. A runtime asks before `cuInit`, which it is about to call: so the
/// driver is asked now. One that cannot be asked is not asked again before `cuInit`.
pub(crate) fn interface<B: Backend>(process: &'static Process<B>) -> &'static Interface {
    if let Some(interface) = process.state.interface.get() {
        return interface;
    }
    if gone::check().is_ok() && !process.state.asked.swap(true, Ordering::Relaxed) {
        quiet_panics();
        let _ = platform(process);
    }
    process.state.interface.get().unwrap_or_else(|| &EVERYTHING)
}

/// A forked child shares no connection and no thread with its parent: like the native driver, we do
/// nothing there.
extern "C" fn forked() {
    gone::forked();
    crate::profile::stop();
}

/// The program's own exit handlers that were there before `cuInit`, and its destructors, come after
/// this. What they ask for fails at once, as with the native driver: whoever exits may be what a
/// stream waits for, and other threads must not go on with what is being taken down.
extern "C" fn exiting() {
    gone::exiting();
}

/// The state, or `CUDA_ERROR_NOT_INITIALIZED`.
pub(crate) fn ready(front: &'static Front) -> Result<&'static Ready> {
    front.state.ready()
}

/// The back end's name of a visible device, by its index.
pub(crate) fn device_id(front: &'static Front, index: usize) -> Result<DeviceId> {
    ready(front)?
        .devices
        .get(index)
        .map(|device| device.id)
        .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// The index of the visible device that the back end means.
pub(crate) fn index_of(front: &'static Front, id: DeviceId) -> Result<usize> {
    let found = ready(front)?.devices.iter().position(|device| device.id == id);
    found.ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// The device of an ordinal that the program gave.
pub(crate) fn device(front: &'static Front, ordinal: CUdevice) -> Result<(usize, &'static Device)> {
    let state = ready(front)?;
    let index = usize::try_from(ordinal).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    let device = state.devices.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    Ok((index, device))
}

/// Panics are caught at the border; their message would be noise in the program's output. The hook
/// is this library's own, since its copy of the standard library is.
fn quiet_panics() {
    // The tests of the front are a program of ours.
    if !cfg!(test) && std::env::var_os("OUTBOARD_PANICS").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
}
