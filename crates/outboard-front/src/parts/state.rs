//! State of the process after a successful `cuInit`.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use outboard_abi::CUresult;
use outboard_wire::platform::{Device, Platform};
use parking_lot::Mutex;

use crate::backend::Result;
use crate::gone;
use crate::variables::Settings;

/// What a process knows of its devices and their driver.
pub(crate) struct DriverState {
    pub(crate) ready: OnceLock<Ready>,
    pub(crate) init: Mutex<()>,
    /// The driver's description of the devices, and the process that asked for it: a forked child
    /// shares no connection with its parent.
    pub(crate) found: Mutex<Option<(u32, Platform)>>,
    pub(crate) interface: OnceLock<Interface>,
    /// The driver has been asked before `cuInit`.
    pub(crate) asked: AtomicBool,
}

/// The devices that the program sees.
pub(crate) struct Ready {
    pub(crate) driver_version: u32,
    pub(crate) devices: Vec<Device>,
    /// Of each device.
    pub(crate) limits: Vec<crate::device::Limits>,
    pub(crate) settings: Settings,
}

impl DriverState {
    pub(crate) const fn new() -> DriverState {
        DriverState {
            ready: OnceLock::new(),
            init: Mutex::new(()),
            found: Mutex::new(None),
            interface: OnceLock::new(),
            asked: AtomicBool::new(false),
        }
    }

    /// The devices, or `CUDA_ERROR_NOT_INITIALIZED`; `CUDA_ERROR_DEINITIALIZED` once the process
    /// exits.
    pub(crate) fn ready(&'static self) -> Result<&'static Ready> {
        gone::check()?;
        self.ready.get().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }
}

/// Which functions there are.
#[derive(Debug)]
pub(crate) struct Interface {
    /// What `cuDriverGetVersion` gives.
    pub(crate) version: u32,
    /// Functions that the device's driver does not have.
    pub(crate) lacks: HashSet<String>,
}
