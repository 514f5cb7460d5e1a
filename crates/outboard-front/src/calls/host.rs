//! Page-locked host memory.

use core::ffi::{c_uint, c_void};

use outboard_abi::{CUdeviceptr, CUresult};
use outboard_ranges::{Mapping, own_mappings};

use crate::backend::{Backend, HostPtr, Result};
use crate::border::{put, require};
use crate::context;
use crate::memory::{self, Kind};
use crate::process::Process;

/// `CU_MEMHOSTALLOC_PORTABLE`, `_DEVICEMAP`, `_WRITECOMBINED`.
const ALLOC_FLAGS: u32 = 7;
/// `CU_MEMHOSTALLOC_DEVICEMAP`, as of `CU_MEMHOSTREGISTER_DEVICEMAP`: kernels reach all of it,
/// whether they were to or not.
const DEVICE_MAP: u32 = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE`, `_DEVICEMAP`, `_IOMEMORY`, `_READ_ONLY`.
const REGISTER_FLAGS: u32 = 15;
/// `CU_MEMHOSTREGISTER_IOMEMORY`: memory of another device of the machine.
const IO_MEMORY: u32 = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`: what kernels may only read.
const READ_ONLY: u32 = 8;

pub unsafe fn cuMemHostAlloc<B: Backend>(
    process: &'static Process<B>,
    out: *mut *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && flags & !ALLOC_FLAGS == 0)?;
    crate::capture::refuse_unsafe(process)?;
    if bytes == 0 {
        // SAFETY: the program's out parameter.
        return unsafe { put(out, core::ptr::null_mut()) };
    }
    let host = here.note(process.backend.host_alloc(here.id, bytes, flags))?;
    memory::insert(
        process,
        &here,
        HostPtr::of(host).unified(),
        bytes as u64,
        Kind::HostAllocated(flags | DEVICE_MAP),
    );
    // SAFETY: the program's out parameter.
    unsafe { put(out, host.cast()) }
}

pub unsafe fn cuMemAllocHost_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut *mut c_void,
    bytes: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemHostAlloc(process, out, bytes, 0) }
}

pub unsafe fn cuMemFreeHost<B: Backend>(
    process: &'static Process<B>,
    host: *mut c_void,
) -> Result<()> {
    crate::state::ready(process)?;
    if host.is_null() {
        return Ok(());
    }
    crate::capture::refuse_unsafe(process)?;
    let allocated = |kind| matches!(kind, Kind::HostAllocated(_));
    let (bytes, allocation) = memory::remove(process, HostPtr::of(host).unified(), allocated)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the map held it, and does no more.
    let outcome = unsafe { process.backend.host_free(allocation.ctx, host.cast(), bytes as usize) };
    process.note(allocation.ctx, outcome)
}

/// Whether the program itself may write to all of a range that is mapped.
fn is_writable(start: u64, bytes: u64) -> bool {
    let range = start..start.saturating_add(bytes);
    let inside =
        |mapping: &Mapping| mapping.range.start < range.end && range.start < mapping.range.end;
    // A system that does not tell may still say no when the pages are locked.
    own_mappings().map_or(true, |mut all| all.all(|mapping| mapping.writable || !inside(&mapping)))
}

pub unsafe fn cuMemHostRegister_v2<B: Backend>(
    process: &'static Process<B>,
    host: *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> Result<()> {
    let here = context::current(process)?;
    require(!host.is_null() && bytes > 0 && flags & !REGISTER_FLAGS == 0)?;
    if flags & IO_MEMORY != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    crate::capture::refuse_unsafe(process)?;
    // Kernels could write where the program cannot.
    require(flags & READ_ONLY != 0 || is_writable(host as u64, bytes as u64))?;
    if memory::overlaps(process, HostPtr::of(host).unified(), bytes as u64) {
        return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    here.note(process.backend.host_register(here.id, host.cast(), bytes, flags))?;
    memory::insert(
        process,
        &here,
        HostPtr::of(host).unified(),
        bytes as u64,
        Kind::HostRegistered((flags | DEVICE_MAP) & !READ_ONLY),
    );
    Ok(())
}

pub unsafe fn cuMemHostRegister<B: Backend>(
    process: &'static Process<B>,
    host: *mut c_void,
    bytes: usize,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemHostRegister_v2(process, host, bytes, flags) }
}

pub unsafe fn cuMemHostUnregister<B: Backend>(
    process: &'static Process<B>,
    host: *mut c_void,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!host.is_null())?;
    crate::capture::refuse_unsafe(process)?;
    let address = HostPtr::of(host).unified();
    let registered = |kind| matches!(kind, Kind::HostRegistered(_));
    let (bytes, allocation) = memory::remove(process, address, registered).ok_or_else(|| {
        // Page-locked in another way, or not from here on.
        match memory::find(process, address) {
            Some((_, _, found)) if found.kind.is_host() => CUresult::CUDA_ERROR_INVALID_VALUE,
            _ => CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        }
    })?;
    process.note(
        allocation.ctx,
        process.backend.host_unregister(allocation.ctx, host.cast(), bytes as usize),
    )
}

pub unsafe fn cuMemHostGetDevicePointer_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    host: *mut c_void,
    flags: c_uint,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && flags == 0)?;
    let (_, _, allocation) = memory::find(process, HostPtr::of(host).unified())
        .filter(|(_, _, allocation)| allocation.kind.is_host())
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let host_address = HostPtr::of(host).unified();
    if allocation.server != here.id.server() {
        here.note(memory::share(process, here.id, host_address, &allocation))?;
        // SAFETY: the program's out parameter.
        return unsafe { put(out, host_address.0) };
    }
    let address = here.note(process.backend.host_device_address(here.id, host.cast()))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

pub unsafe fn cuMemHostGetFlags<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_uint,
    host: *mut c_void,
) -> Result<()> {
    crate::state::ready(process)?;
    let (_, _, allocation) = memory::find(process, HostPtr::of(host).unified())
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let flags = match allocation.kind {
        Kind::HostAllocated(flags) | Kind::HostRegistered(flags) => flags,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags) }
}
