//! Page-locked host memory.

use core::ffi::{c_uint, c_void};

use outboard_abi::{CUdeviceptr, CUresult};

use crate::Driver;
use crate::backend::Result;
use crate::border::{put, require};
use crate::context;
use crate::memory::{self, Kind};

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP`, `_WRITECOMBINED`.
const ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE`, `_DEVICEMAP`, `_IOMEMORY`, `_READ_ONLY`.
const REGISTER_FLAGS: u32 = 15;
/// `CU_MEMHOSTREGISTER_IOMEMORY`: memory of another device of the machine.
const IO_MEMORY: u32 = 4;

pub(crate) unsafe fn cuMemHostAlloc<D: Driver>(out: *mut *mut c_void, bytes: usize, flags: c_uint) -> Result<()> {
    let here = context::current()?;
    require(!out.is_null() && flags & !ALLOC_FLAGS == 0)?;
    crate::capture::refuse_unsafe()?;
    if bytes == 0 {
        // SAFETY: the program's out parameter.
        return unsafe { put(out, core::ptr::null_mut()) };
    }
    let host = D::get().host_alloc(here.id, bytes, flags)?;
    memory::insert(&here, host as u64, bytes as u64, Kind::HostAllocated(flags));
    // SAFETY: the program's out parameter.
    unsafe { put(out, host.cast()) }
}

pub(crate) unsafe fn cuMemAllocHost_v2<D: Driver>(out: *mut *mut c_void, bytes: usize) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemHostAlloc::<D>(out, bytes, 0) }
}

pub(crate) unsafe fn cuMemFreeHost<D: Driver>(host: *mut c_void) -> Result<()> {
    crate::state::ready()?;
    if host.is_null() {
        return Ok(());
    }
    crate::capture::refuse_unsafe()?;
    let allocated = |kind| matches!(kind, Kind::HostAllocated(_));
    let (bytes, allocation) = memory::remove(host as u64, allocated).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the map held it, and does no more.
    unsafe { D::get().host_free(allocation.ctx, host.cast(), bytes as usize) }
}

pub(crate) unsafe fn cuMemHostRegister_v2<D: Driver>(host: *mut c_void, bytes: usize, flags: c_uint) -> Result<()> {
    let here = context::current()?;
    require(!host.is_null() && bytes > 0 && flags & !REGISTER_FLAGS == 0)?;
    if flags & IO_MEMORY != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    crate::capture::refuse_unsafe()?;
    if memory::overlaps(host as u64, bytes as u64) {
        return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    D::get().host_register(here.id, host.cast(), bytes, flags)?;
    memory::insert(&here, host as u64, bytes as u64, Kind::HostRegistered(flags));
    Ok(())
}

pub(crate) unsafe fn cuMemHostRegister<D: Driver>(host: *mut c_void, bytes: usize, flags: c_uint) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemHostRegister_v2::<D>(host, bytes, flags) }
}

pub(crate) unsafe fn cuMemHostUnregister<D: Driver>(host: *mut c_void) -> Result<()> {
    crate::state::ready()?;
    require(!host.is_null())?;
    crate::capture::refuse_unsafe()?;
    let registered = |kind| matches!(kind, Kind::HostRegistered(_));
    let (bytes, allocation) =
        memory::remove(host as u64, registered).ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    D::get().host_unregister(allocation.ctx, host.cast(), bytes as usize)
}

pub(crate) unsafe fn cuMemHostGetDevicePointer_v2<D: Driver>(
    out: *mut CUdeviceptr,
    host: *mut c_void,
    flags: c_uint,
) -> Result<()> {
    let here = context::current()?;
    require(!out.is_null() && flags == 0)?;
    memory::find(host as u64).filter(|(_, _, a)| a.kind.is_host()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let address = here.note(D::get().host_device_address(here.id, host.cast()))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, address) }
}

pub(crate) unsafe fn cuMemHostGetFlags<D: Driver>(out: *mut c_uint, host: *mut c_void) -> Result<()> {
    crate::state::ready()?;
    let (_, _, allocation) = memory::find(host as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let flags = match allocation.kind {
        Kind::HostAllocated(flags) | Kind::HostRegistered(flags) => flags,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags) }
}
