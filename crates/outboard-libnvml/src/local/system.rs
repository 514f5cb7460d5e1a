//! Start, end, versions.

use std::ffi::{c_char, c_int, c_uint, c_void};

use outboard_abi::nvml::nvmlReturn_t;

use crate::border::{INVALID, Result, put};
use crate::{error, session, tables};

pub(crate) unsafe fn nvmlInit() -> Result<()> {
    session::initialise()
}

pub(crate) unsafe fn nvmlInit_v2() -> Result<()> {
    session::initialise()
}

/// The flags say what may be missing. Nothing is; NVIDIA's library takes unknown ones, too.
pub(crate) unsafe fn nvmlInitWithFlags(_flags: c_uint) -> Result<()> {
    session::initialise()
}

pub(crate) unsafe fn nvmlShutdown() -> Result<()> {
    session::shut_down()
}

pub(crate) fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    error::text(result).as_ptr()
}

pub(crate) unsafe fn nvmlInternalGetExportTable(
    table: *mut *const c_void,
    uuid: *const c_void,
) -> Result<()> {
    if uuid.is_null() {
        return Err(INVALID);
    }
    // SAFETY: a UUID of 16 bytes, by the contract.
    let found = tables::find(unsafe { &*uuid.cast::<[u8; 16]>() }).ok_or(INVALID)?;
    // SAFETY: null or valid, by the contract.
    unsafe { put(table, found) }
}

pub(crate) unsafe fn nvmlSystemGetCudaDriverVersion(version: *mut c_int) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: null or valid, by the contract.
    unsafe { put(version, machine.platform().driver_version as c_int) }
}

pub(crate) unsafe fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { nvmlSystemGetCudaDriverVersion(version) }
}
