//! Sets of events. They can be made and waited for, as `nvidia-smi` does to see whether a GPU is
//! well, but no device offers events, so that none ever comes.

use std::collections::BTreeSet;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use outboard_abi::nvml::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlReturn_t};

use crate::border::{INVALID, NOT_SUPPORTED, Result, put};
use crate::{device, session};

/// Handles are this and a number: no address of anything.
const BASE: usize = 0x0b0a_4e00_0000;

/// The numbers of the sets that are there, and the last one given out.
static SETS: Mutex<(BTreeSet<usize>, usize)> = Mutex::new((BTreeSet::new(), 0));

fn known(set: nvmlEventSet_t) -> Result<()> {
    let sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    if sets.0.contains(&set.addr().wrapping_sub(BASE)) { Ok(()) } else { Err(INVALID) }
}

pub(crate) unsafe fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> Result<()> {
    session::require_initialised()?;
    if set.is_null() {
        return Err(INVALID);
    }
    let mut sets = SETS.lock().unwrap_or_else(PoisonError::into_inner);
    sets.1 += 1;
    let number = sets.1;
    sets.0.insert(number);
    // SAFETY: valid, by the contract.
    unsafe { put(set, core::ptr::without_provenance_mut(BASE + number)) }
}

pub(crate) unsafe fn nvmlEventSetFree(set: nvmlEventSet_t) -> Result<()> {
    session::require_initialised()?;
    known(set)?;
    SETS.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&set.addr().wrapping_sub(BASE));
    Ok(())
}

pub(crate) unsafe fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: c_ulonglong,
    set: nvmlEventSet_t,
) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    known(set)?;
    // As `nvmlDeviceGetSupportedEventTypes` says, there are none.
    if types == 0 { Ok(()) } else { Err(NOT_SUPPORTED) }
}

pub(crate) unsafe fn nvmlEventSetWait(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    milliseconds: c_uint,
) -> Result<()> {
    session::require_initialised()?;
    known(set)?;
    if data.is_null() {
        return Err(INVALID);
    }
    std::thread::sleep(Duration::from_millis(milliseconds.into()));
    Err(nvmlReturn_t::NVML_ERROR_TIMEOUT)
}

pub(crate) unsafe fn nvmlEventSetWait_v2(
    set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    milliseconds: c_uint,
) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { nvmlEventSetWait(set, data, milliseconds) }
}
