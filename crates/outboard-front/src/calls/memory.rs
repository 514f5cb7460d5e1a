//! Device memory, and the map of what is allocated.

use core::ffi::c_uint;

use outboard_abi::{CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};

use crate::backend::{Backend, DevicePtr, Result, UnifiedPtr};
use crate::border::{put, put_if, require};
use crate::context;
use crate::memory::{Kind, find, insert, remove};
use crate::process::Process;
use crate::several::one_server;
use crate::{pool, stream};

/// Rows of `cuMemAllocPitch` begin at multiples of this, as on devices of today.
const PITCH: u64 = 512;

pub unsafe fn cuMemAlloc_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && bytes > 0)?;
    crate::capture::refuse_unsafe(process)?;
    let address = here.note(process.backend.memory_alloc(here.id, bytes as u64))?;
    insert(process, &here, address.unified(), bytes as u64, Kind::Device);
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

/// An address as programs of before CUDA 3.2 have it. Memory at another one is not for them.
fn narrow<B: Backend>(process: &'static Process<B>, address: u64) -> Result<u32> {
    u32::try_from(address).map_err(|_| {
        // SAFETY: allocated for this call, and not given to the program.
        let _ = unsafe { cuMemFree_v2(process, address) };
        CUresult::CUDA_ERROR_OUT_OF_MEMORY
    })
}

pub unsafe fn cuMemAlloc<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr_v1,
    bytes: c_uint,
) -> Result<()> {
    require(!out.is_null())?;
    let mut address = 0;
    // SAFETY: the out parameters are ours and the program's.
    unsafe {
        cuMemAlloc_v2(process, &raw mut address, bytes as usize)?;
        put(out, narrow(process, address)?)
    }
}

pub unsafe fn cuMemAllocPitch<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr_v1,
    pitch: *mut c_uint,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> Result<()> {
    require(!out.is_null() && !pitch.is_null())?;
    let (mut address, mut row) = (0, 0);
    // SAFETY: the out parameters are ours and the program's.
    unsafe {
        cuMemAllocPitch_v2(
            process,
            &raw mut address,
            &raw mut row,
            width as usize,
            height as usize,
            element,
        )?;
        put(out, narrow(process, address)?)?;
        put(pitch, row as c_uint)
    }
}

pub unsafe fn cuMemFree<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr_v1,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemFree_v2(process, address.into()) }
}

pub unsafe fn cuMemGetInfo<B: Backend>(
    process: &'static Process<B>,
    free: *mut c_uint,
    total: *mut c_uint,
) -> Result<()> {
    let (mut free_bytes, mut total_bytes) = (0, 0);
    let narrow = |bytes: usize| c_uint::try_from(bytes).unwrap_or(c_uint::MAX);
    // SAFETY: the out parameters are ours and the program's.
    unsafe {
        cuMemGetInfo_v2(process, &raw mut free_bytes, &raw mut total_bytes)?;
        put_if(free, narrow(free_bytes));
        put_if(total, narrow(total_bytes));
    }
    Ok(())
}

pub unsafe fn cuMemGetAddressRange<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr_v1,
    bytes: *mut c_uint,
    address: CUdeviceptr_v1,
) -> Result<()> {
    let (mut base, mut len) = (0, 0);
    // SAFETY: the out parameters are ours.
    unsafe { cuMemGetAddressRange_v2(process, &raw mut base, &raw mut len, address.into()) }?;
    let wide = |_| CUresult::CUDA_ERROR_INVALID_VALUE;
    let (base, len) = (
        u32::try_from(base).map_err(wide)?,
        c_uint::try_from(len).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?,
    );
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(out, base);
        put_if(bytes, len);
    }
    Ok(())
}

pub unsafe fn cuMemAllocPitch_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Result<()> {
    require(!pitch.is_null() && width > 0 && height > 0 && matches!(element, 4 | 8 | 16))?;
    let row =
        (width as u64).checked_next_multiple_of(PITCH).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let bytes = row.checked_mul(height as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    // SAFETY: the program's out parameters.
    unsafe {
        cuMemAlloc_v2(process, out, bytes as usize)?;
        put(pitch, row as usize)
    }
}

pub unsafe fn cuMemFree_v2<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
) -> Result<()> {
    crate::state::ready(process)?;
    let address = UnifiedPtr(address);
    if address.is_null() {
        return Ok(());
    }
    let is_device =
        |kind| matches!(kind, Kind::Device | Kind::Pooled(_) | Kind::Graph | Kind::Managed);
    crate::capture::refuse_unsafe(process)?;
    // The allocation's own context frees it, whichever is current; a faulted one reports its fault.
    let (_, _, allocation) = find(process, address)
        .filter(|(base, _, allocation)| *base == address && is_device(allocation.kind))
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let here = context::by_id(process, allocation.ctx)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?
        .live()?;
    if allocation.kind == Kind::Managed {
        let (bytes, _) =
            remove(process, address, is_device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        crate::managed::forget(process, address, bytes);
        return here.note(process.backend.managed_free(here.id, address));
    }
    if allocation.kind != Kind::Graph || !crate::graph::memory::is_owned(process, address.device())
    {
        remove(process, address, is_device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    }
    here.note(process.backend.memory_free(here.id, address.device()))
}

pub unsafe fn cuMemGetInfo_v2<B: Backend>(
    process: &'static Process<B>,
    free: *mut usize,
    total: *mut usize,
) -> Result<()> {
    let here = context::current(process)?;
    let (f, t) = here.note(process.backend.memory_info(here.id))?;
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(free, f as usize);
        put_if(total, t as usize);
    }
    Ok(())
}

pub unsafe fn cuMemGetAddressRange_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: *mut usize,
    address: CUdeviceptr,
) -> Result<()> {
    context::current(process)?;
    let (base, len, _) =
        find(process, UnifiedPtr(address)).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    // SAFETY: the program's out parameters, each of which may be left out.
    unsafe {
        put_if(out, base.0);
        put_if(bytes, len as usize);
    }
    Ok(())
}

pub unsafe fn cuMemAllocAsync<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    let (here, stream) = stream::find(process, stream)?;
    require(!out.is_null())?;
    let address = match bytes {
        0 => DevicePtr::NULL,
        _ => pool::alloc_from_current(process, &here, bytes as u64, stream)?,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

pub unsafe fn cuMemFreeAsync<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    stream: CUstream,
) -> Result<()> {
    let (here, stream) = stream::find(process, stream)?;
    let address = DevicePtr(address);
    if address.is_null() {
        return Ok(());
    }
    if let Some(outcome) = crate::capture::free(process, &here, stream, address) {
        return outcome;
    }
    crate::capture::refuse_unsafe(process)?;
    let is_device = |kind| matches!(kind, Kind::Device | Kind::Pooled(_) | Kind::Graph);
    if !crate::graph::memory::is_owned(process, address) {
        if let Some((_, _, allocation)) = find(process, address.unified()) {
            one_server(here.id.server(), [allocation.server])?;
        }
        remove(process, address.unified(), is_device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    }
    here.note(process.backend.memory_free_async(here.id, address, stream))
}
