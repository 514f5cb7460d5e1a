//! `cuGetProcAddress`: which ABI of a function a program gets.
//!
//! The rule of cuda.h: of the ABIs introduced at or before the version asked for, the newest; with
//! the per-thread flag the `_ptds`/`_ptsz` form where there is one, else the legacy one.

use core::ffi::{c_char, c_int, c_void};

use outboard_abi::{CUdriverProcAddressQueryResult, CUresult};

use crate::backend::{Backend, Result};
use crate::border::{put, put_if, require, text};
use crate::process::Process;
use crate::state::Interface;

/// One exported symbol.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    base: &'static str,
    since: u32,
    per_thread: bool,
    symbol: &'static str,
    /// The function of the device's driver that it cannot do without.
    needs: Option<&'static str>,
    address: *const (),
}

// SAFETY: the address is that of a function, which any thread may call.
unsafe impl Sync for Entry {}

impl Entry {
    /// The ABI of `base` that CUDA `since` introduced, exported as `symbol` at `address`.
    pub const fn new(
        base: &'static str,
        since: u32,
        per_thread: bool,
        symbol: &'static str,
        address: *const (),
    ) -> Entry {
        Entry { base, since, per_thread, symbol, needs: None, address }
    }

    /// It is only there if the device's driver has `function`.
    pub const fn needs(self, function: &'static str) -> Entry {
        Entry { needs: Some(function), ..self }
    }

    /// The exported name.
    pub fn symbol(&self) -> &'static str {
        self.symbol
    }
}

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// Why there is no address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    /// No such function.
    Symbol,
    /// Every ABI of it is newer than the version asked for.
    Version,
}

/// Finds the entry of `table` (sorted by base name) for a program's query, among those that the
/// device's driver version has.
fn find(
    table: &'static [Entry],
    interface: &Interface,
    name: &str,
    version: u32,
    flags: u64,
) -> std::result::Result<&'static Entry, Missing> {
    let start = table.partition_point(|entry| entry.base < name);
    let same: &[Entry] =
        &table[start..start + table[start..].partition_point(|entry| entry.base == name)];
    let there = |entry: &&Entry| {
        entry.since <= interface.version
            && !entry.needs.is_some_and(|function| interface.lacks.contains(function))
    };
    if !same.iter().any(|entry| there(&entry)) {
        return Err(Missing::Symbol);
    }
    let newest = |per_thread| {
        same.iter()
            .filter(there)
            .filter(|entry| entry.per_thread == per_thread && entry.since <= version)
            .max_by_key(|entry| entry.since)
    };
    let per_thread = if flags & PER_THREAD != 0 { newest(true) } else { None };
    per_thread.or_else(|| newest(false)).ok_or(Missing::Version)
}

/// What both forms check.
///
/// # Safety
/// `symbol` is null or a C string.
unsafe fn look_up<B: Backend>(
    process: &'static Process<B>,
    table: &'static [Entry],
    symbol: *const c_char,
    version: c_int,
    flags: u64,
) -> Result<std::result::Result<*mut c_void, Missing>> {
    // SAFETY: by the contract above.
    let name = unsafe { text(symbol) }?;
    let version = u32::try_from(version).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // A runtime that is newer than the interface asks for newer versions of it and must be told.
    let interface = crate::state::interface(process);
    require(version <= interface.version && flags <= 3)?;
    Ok(find(table, interface, name, version, flags).map(|entry| entry.address.cast_mut().cast()))
}

/// `cuGetProcAddress` of CUDA 11.3: an error for what is not there.
///
/// # Safety
/// Pointers are null or valid as the C function says.
pub(crate) unsafe fn version_1<B: Backend>(
    process: &'static Process<B>,
    table: &'static [Entry],
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Result<()> {
    require(!pfn.is_null())?;
    // SAFETY: by the contract above.
    match unsafe { look_up(process, table, symbol, version, flags) }? {
        // SAFETY: by the contract above.
        Ok(address) => unsafe { put(pfn, address) },
        Err(_) => {
            // SAFETY: by the contract above.
            unsafe { put(pfn, core::ptr::null_mut()) }?;
            Err(CUresult::CUDA_ERROR_NOT_FOUND)
        }
    }
}

/// `cuGetProcAddress_v2` of CUDA 12: success and a status for what is not there.
///
/// # Safety
/// Pointers are null or valid as the C function says.
pub(crate) unsafe fn version_2<B: Backend>(
    process: &'static Process<B>,
    table: &'static [Entry],
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut CUdriverProcAddressQueryResult,
) -> Result<()> {
    require(!pfn.is_null())?;
    // SAFETY: by the contract above.
    let found = unsafe { look_up(process, table, symbol, version, flags) }?;
    let (address, why) = match found {
        Ok(address) => (address, CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS),
        Err(Missing::Symbol) => (
            core::ptr::null_mut(),
            CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
        ),
        Err(Missing::Version) => (
            core::ptr::null_mut(),
            CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        ),
    };
    // SAFETY: by the contract above.
    unsafe {
        put_if(status, why);
        put(pfn, address)
    }
}
