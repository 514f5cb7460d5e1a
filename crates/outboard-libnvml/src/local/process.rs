//! The processes that use a device: those of this machine.

use std::ffi::{c_char, c_uint};
use std::os::unix::ffi::OsStrExt;

use outboard_abi::nvml::{
    nvmlDevice_t, nvmlProcessDetail_v1_t, nvmlProcessDetailList_t, nvmlProcessInfo_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlReturn_t,
};

use crate::border::{INVALID, NOT_FOUND, Result, put, put_text};
use crate::machine::Machine;
use crate::{device, session};

/// For a process that is on no partition of a device.
pub(crate) const NO_INSTANCE: c_uint = u32::MAX;

/// Processes that use a device, each with its bytes of device memory.
fn processes(machine: &Machine, device: nvmlDevice_t) -> Result<Vec<(u32, u64)>> {
    machine.processes(device::place(machine, device)?)
}

/// Stores as many as there are, if there is room for all.
///
/// # Safety
/// `count` is null or valid, and `out` is null or has room for as many elements as it says.
unsafe fn list<T>(entries: &[T], count: *mut c_uint, out: *mut T) -> Result<()> {
    if count.is_null() {
        return Err(INVALID);
    }
    // SAFETY: valid, by the contract above.
    let room = unsafe { count.replace(entries.len() as c_uint) } as usize;
    if entries.is_empty() {
        return Ok(());
    }
    if room < entries.len() {
        return Err(nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE);
    }
    if out.is_null() {
        return Err(INVALID);
    }
    // SAFETY: there is room for them, by the contract above.
    unsafe { core::ptr::copy_nonoverlapping(entries.as_ptr(), out, entries.len()) };
    Ok(())
}

/// Lists the processes that use a device, each as `entry` says.
///
/// # Safety
/// As of [`list`].
pub(crate) unsafe fn list_processes<T>(
    device: nvmlDevice_t,
    count: *mut c_uint,
    out: *mut T,
    entry: impl Fn(u32, u64) -> T,
) -> Result<()> {
    let machine = session::machine()?;
    let entries: Vec<T> = processes(&machine, device)?
        .into_iter()
        .map(|(process, bytes)| entry(process, bytes))
        .collect();
    // SAFETY: by the contract above.
    unsafe { list(&entries, count, out) }
}

/// Lists no processes.
///
/// # Safety
/// `count` is null or valid for a write.
pub(crate) unsafe fn list_no_processes(device: nvmlDevice_t, count: *mut c_uint) -> Result<()> {
    let machine = session::machine()?;
    device::index(&machine, device)?;
    // SAFETY: by the contract above.
    unsafe { put(count, 0) }
}

/// A function that lists the processes of one kind; each release has its own structure for it.
macro_rules! lists {
    ($name:ident, $kind:ident, $info:ty, |$process:ident, $bytes:ident| $entry:expr) => {
        pub(crate) unsafe fn $name(
            device: nvmlDevice_t,
            count: *mut c_uint,
            infos: *mut $info,
        ) -> Result<()> {
            let machine = session::machine()?;
            let entries: Vec<$info> =
                $kind(&machine, device)?.into_iter().map(|($process, $bytes)| $entry).collect();
            // SAFETY: by the contract.
            unsafe { list(&entries, count, infos) }
        }
    };
    ($v1:ident, $v2:ident, $v3:ident, $kind:ident) => {
        lists!($v1, $kind, nvmlProcessInfo_v1_t, |pid, bytes| nvmlProcessInfo_v1_t {
            pid,
            usedGpuMemory: bytes
        });
        lists!($v2, $kind, nvmlProcessInfo_v2_t, |pid, bytes| nvmlProcessInfo_v2_t {
            pid,
            usedGpuMemory: bytes,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
        });
        lists!($v3, $kind, nvmlProcessInfo_t, |pid, bytes| nvmlProcessInfo_t {
            pid,
            usedGpuMemory: bytes,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
        });
    };
}

/// No session draws or shares a server of MPS.
fn none(machine: &Machine, device: nvmlDevice_t) -> Result<Vec<(u32, u64)>> {
    device::index(machine, device).map(|_| Vec::new())
}

lists!(
    nvmlDeviceGetComputeRunningProcesses,
    nvmlDeviceGetComputeRunningProcesses_v2,
    nvmlDeviceGetComputeRunningProcesses_v3,
    processes
);
lists!(
    nvmlDeviceGetGraphicsRunningProcesses,
    nvmlDeviceGetGraphicsRunningProcesses_v2,
    nvmlDeviceGetGraphicsRunningProcesses_v3,
    none
);
lists!(
    nvmlDeviceGetMPSComputeRunningProcesses,
    nvmlDeviceGetMPSComputeRunningProcesses_v2,
    nvmlDeviceGetMPSComputeRunningProcesses_v3,
    none
);

/// `nvmlProcessDetailList_t.mode`: compute processes.
const COMPUTE: c_uint = 0;
/// Its modes for graphics and MPS.
const OTHERS: [c_uint; 2] = [1, 2];

pub(crate) unsafe fn nvmlDeviceGetRunningProcessDetailList(
    device: nvmlDevice_t,
    out: *mut nvmlProcessDetailList_t,
) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: null or valid, by the contract.
    let out = unsafe { out.as_mut() }.ok_or(INVALID)?;
    if out.version != size_of::<nvmlProcessDetailList_t>() as u32 | 1 << 24 {
        return Err(nvmlReturn_t::NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let found = match out.mode {
        COMPUTE => processes(&machine, device)?,
        mode if OTHERS.contains(&mode) => none(&machine, device)?,
        _ => return Err(INVALID),
    };
    let detail = |(pid, usedGpuMemory)| nvmlProcessDetail_v1_t {
        pid,
        usedGpuMemory,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
        usedGpuCcProtectedMemory: 0,
    };
    let entries: Vec<nvmlProcessDetail_v1_t> = found.into_iter().map(detail).collect();
    // SAFETY: the structure's own fields, which say how much room there is.
    unsafe { list(&entries, &raw mut out.numProcArrayEntries, out.procArray) }
}

/// What a process of this machine was started as.
pub(crate) fn name_of(process: u32) -> Option<String> {
    let command = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    match command.split(|byte| *byte == 0).next() {
        Some(first) if !first.is_empty() => Some(String::from_utf8_lossy(first).into_owned()),
        _ => {
            let path = std::fs::read_link(format!("/proc/{process}/exe")).ok()?;
            Some(String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned())
        }
    }
}

/// The processes that are listed are this machine's, and it knows their names.
pub(crate) unsafe fn nvmlSystemGetProcessName(
    process: c_uint,
    name: *mut c_char,
    length: c_uint,
) -> Result<()> {
    session::require_initialised()?;
    if name.is_null() || length == 0 {
        return Err(INVALID);
    }
    let program = name_of(process).ok_or(NOT_FOUND)?;
    // As much as there is room for, as NVML does.
    let mut end = program.len().min(length as usize - 1);
    while !program.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: as long as said, by the contract.
    unsafe { put_text(name, length, &program[..end]) }
}
