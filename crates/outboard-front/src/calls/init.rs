//! Start-up, errors, entry point look-up.

use core::ffi::{c_char, c_int, c_uint, c_void};

use outboard_abi::{CUdriverProcAddressQueryResult, CUresult, CUuuid, cuuint64_t};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::errors;
use crate::proc_address::{self, Entry};
use crate::process::Process;
use crate::{context, refusals, state};

pub unsafe fn cuInit<B: Backend>(process: &'static Process<B>, flags: c_uint) -> Result<()> {
    require(flags == 0)?;
    state::init(process)?;
    context::init(process);
    Ok(())
}

pub unsafe fn cuDriverGetVersion<B: Backend>(
    process: &'static Process<B>,
    version: *mut c_int,
) -> Result<()> {
    require(!version.is_null())?;
    // SAFETY: the program's out parameter.
    unsafe { put(version, state::interface(process).version as c_int) }
}

pub unsafe fn cuGetErrorName<B: Backend>(
    _process: &'static Process<B>,
    error: CUresult,
    out: *mut *const c_char,
) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { describe(out, errors::find(error).map(|(name, _)| name)) }
}

pub unsafe fn cuGetErrorString<B: Backend>(
    _process: &'static Process<B>,
    error: CUresult,
    out: *mut *const c_char,
) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { describe(out, errors::find(error).map(|(_, text)| text)) }
}

pub unsafe fn cuGetProcAddress<B: Backend>(
    process: &'static Process<B>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    table: &'static [Entry],
) -> Result<()> {
    // SAFETY: the program's arguments.
    unsafe { proc_address::version_1(process, table, symbol, pfn, version, flags) }
}

pub unsafe fn cuGetProcAddress_v2<B: Backend>(
    process: &'static Process<B>,
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
    table: &'static [Entry],
) -> Result<()> {
    // SAFETY: the program's arguments.
    unsafe { proc_address::version_2(process, table, symbol, pfn, version, flags, status) }
}

pub unsafe fn cuGetExportTable<B: Backend>(
    process: &'static Process<B>,
    table: *mut *const c_void,
    id: *const CUuuid,
) -> Result<()> {
    require(!table.is_null() && !id.is_null())?;
    // SAFETY: not null; the program passes a UUID.
    let id = unsafe { (*id).bytes }.map(|byte| byte as u8);
    let Some(found) = process.hooks.and_then(|hooks| (hooks.table)(&id)) else {
        refusals::unknown_table(&id);
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: checked for null above.
    unsafe { put(table, found) }
}

/// # Safety
/// `out` is null or valid for a write.
unsafe fn describe(out: *mut *const c_char, found: Option<&'static core::ffi::CStr>) -> Result<()> {
    // SAFETY: by the contract above.
    unsafe { put(out, found.map_or(core::ptr::null(), |text| text.as_ptr())) }?;
    require(found.is_some())
}
