//! Memory and events of other processes.

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::os::fd::IntoRawFd;
use std::sync::atomic::Ordering;

use outboard_abi::{
    CUdeviceptr, CUevent, CUipcEventHandle, CUipcMemHandle, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType, CUresult,
};

use crate::backend::{Backend, DevicePtr, MemoryKind, Result, Token, UnifiedPtr};
use crate::border::{put, require};
use crate::ipc::FLAGS;
use crate::memory::{self, Kind};
use crate::pool::sharing::{descriptor, given};
use crate::process::Process;
use crate::state::{device_id, index_of, ready};
use crate::{context, event, vmm};

fn from_chars(chars: [core::ffi::c_char; 64]) -> Token {
    chars.map(|byte| byte as u8)
}

fn to_chars(token: Token) -> [core::ffi::c_char; 64] {
    token.map(|byte| byte as core::ffi::c_char)
}

pub unsafe fn cuIpcGetMemHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUipcMemHandle,
    address: CUdeviceptr,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null())?;
    let (base, bytes, allocation) =
        memory::find(process, UnifiedPtr(address)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let token = match allocation.kind {
        Kind::Device => process.backend.share_memory(allocation.ctx, base.device(), bytes),
        // Programs may not, as natively; but an allocation cut from it is one.
        Kind::Mapped { accessible: true, .. } if process.vmm.is_cut.load(Ordering::Relaxed) => {
            let left = bytes - UnifiedPtr(address).since(base);
            let here = context::on(process, here.clone(), allocation.server)?;
            process.backend.share_memory(here.id, DevicePtr(address), left)
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    let token = here.note(token)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUipcMemHandle { reserved: to_chars(token) }) }
}

pub unsafe fn cuIpcOpenMemHandle_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && flags & !FLAGS == 0)?;
    let mut opened = process.imports.opened.lock();
    let (address, bytes) =
        here.note(process.backend.open_memory(here.id, &from_chars(handle.reserved), flags))?;
    let count = opened.entry(address).or_default();
    *count += 1;
    if *count == 1 {
        memory::insert(process, &here, address.unified(), bytes, Kind::Opened);
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

pub unsafe fn cuIpcOpenMemHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuIpcOpenMemHandle_v2(process, out, handle, flags) }
}

pub unsafe fn cuIpcCloseMemHandle<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
) -> Result<()> {
    ready(process)?;
    let address = DevicePtr(address);
    let mut opened = process.imports.opened.lock();
    let (_, _, allocation) = memory::find(process, address.unified())
        .filter(|(base, _, allocation)| {
            *base == address.unified() && allocation.kind == Kind::Opened
        })
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let here = context::by_id(process, allocation.ctx)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?
        .live()?;
    here.note(process.backend.close_memory(here.id, address))?;
    match opened.get_mut(&address) {
        Some(count) if *count > 1 => *count -= 1,
        _ => {
            opened.remove(&address);
            memory::remove(process, address.unified(), |kind| kind == Kind::Opened);
        }
    }
    Ok(())
}

pub unsafe fn cuIpcGetEventHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUipcEventHandle,
    event: CUevent,
) -> Result<()> {
    let (here, event) = event::shareable(process, event)?;
    require(!out.is_null())?;
    let token = here.note(process.backend.share_event(here.id, event))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUipcEventHandle { reserved: to_chars(token) }) }
}

pub unsafe fn cuIpcOpenEventHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUevent,
    handle: CUipcEventHandle,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null())?;
    let token = from_chars(handle.reserved);
    let handle =
        event::adopt(process, &here, |id| process.backend.open_event(here.id, id, &token))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUevent) }
}

pub unsafe fn cuMemExportToShareableHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Result<()> {
    let physical = vmm::resolve(process, handle)?;
    descriptor(kind, flags)?;
    require(!out.is_null() && physical.prop.requestedHandleTypes.0 & vmm::POSIX != 0)?;
    let fd =
        process.backend.export_physical(device_id(process, physical.device)?, physical.id())?;
    // SAFETY: for this type of handle the out parameter is an `int`.
    unsafe { put(out.cast::<c_int>(), fd.into_raw_fd()) }
}

pub unsafe fn cuMemImportFromShareableHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemGenericAllocationHandle,
    handle: *mut c_void,
    kind: CUmemAllocationHandleType,
) -> Result<()> {
    ready(process)?;
    descriptor(kind, 0)?;
    require(!out.is_null())?;
    // SAFETY: the program's descriptor.
    let fd = unsafe { given(handle) }?;
    let handle = vmm::adopt_with(process, |id| {
        let (bytes, kind) = process.backend.import_physical(id, fd)?;
        match index_of(process, kind.device) {
            Ok(device) => Ok((bytes, properties(kind, device), device)),
            Err(error) => {
                let _ = process.backend.vmm_release(kind.device, id);
                Err(error)
            }
        }
    })?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle) }
}

fn properties(kind: MemoryKind, device: usize) -> CUmemAllocationProp {
    // SAFETY: a plain structure of numbers and a pointer, all of which may be zero.
    let mut prop: CUmemAllocationProp = unsafe { core::mem::zeroed() };
    prop.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CUmemAllocationHandleType(kind.handle_types);
    prop.location = CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device as c_int,
    };
    prop.allocFlags.compressionType = kind.compression as u8;
    prop.allocFlags.usage = kind.usage as u16;
    prop
}
