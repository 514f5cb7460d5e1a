//! What a session never has: units, excluded devices, partitions, types of events, memory of the
//! program that kernels read without CUDA having allocated it.

use std::ffi::{c_uint, c_ulonglong};

use outboard_abi::nvml::{
    nvmlDevice_t, nvmlDeviceAddressingMode_t, nvmlDeviceAddressingModeType_t, nvmlHwbcEntry_t,
    nvmlReturn_t,
};

use crate::border::{INVALID, NOT_FOUND, Result, put};
use crate::{device, session};

/// # Safety
/// `count` is null or valid for a write.
unsafe fn none(count: *mut c_uint) -> Result<()> {
    session::require_initialised()?;
    // SAFETY: by the contract above.
    unsafe { put(count, 0) }
}

pub(crate) unsafe fn nvmlUnitGetCount(count: *mut c_uint) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { none(count) }
}

pub(crate) unsafe fn nvmlSystemGetHicVersion(
    count: *mut c_uint,
    _: *mut nvmlHwbcEntry_t,
) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { none(count) }
}

/// It may be asked before `nvmlInit`.
pub(crate) unsafe fn nvmlGetExcludedDeviceCount(count: *mut c_uint) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { put(count, 0) }
}

pub(crate) unsafe fn nvmlGetBlacklistDeviceCount(count: *mut c_uint) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { nvmlGetExcludedDeviceCount(count) }
}

pub(crate) unsafe fn nvmlDeviceIsMigDeviceHandle(
    device: nvmlDevice_t,
    partition: *mut c_uint,
) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    // SAFETY: null or valid, by the contract.
    unsafe { put(partition, 0) }
}

pub(crate) unsafe fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    _: c_uint,
    _: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    Err(NOT_FOUND)
}

pub(crate) unsafe fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    _: nvmlDevice_t,
    _: *mut nvmlDevice_t,
) -> Result<()> {
    session::require_initialised()?;
    Err(INVALID)
}

pub(crate) unsafe fn nvmlDeviceGetSupportedEventTypes(
    device: nvmlDevice_t,
    types: *mut c_ulonglong,
) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    // SAFETY: null or valid, by the contract.
    unsafe { put(types, 0) }
}

/// How kernels get at memory that CUDA has not allocated.
pub(crate) const ADDRESSING_MODE: nvmlDeviceAddressingModeType_t =
    nvmlDeviceAddressingModeType_t::NVML_DEVICE_ADDRESSING_MODE_NONE;

pub(crate) unsafe fn nvmlDeviceGetAddressingMode(
    device: nvmlDevice_t,
    mode: *mut nvmlDeviceAddressingMode_t,
) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    // SAFETY: null or valid, by the contract.
    let mode = unsafe { mode.as_mut() }.ok_or(INVALID)?;
    if mode.version != size_of::<nvmlDeviceAddressingMode_t>() as c_uint | 1 << 24 {
        return Err(nvmlReturn_t::NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    mode.value = ADDRESSING_MODE.0;
    Ok(())
}
