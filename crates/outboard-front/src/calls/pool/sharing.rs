//! Pools and their allocations, passed to other processes.

use core::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use outboard_abi::{
    CUdeviceptr, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool, CUresult,
};

use crate::backend::{Backend, DevicePtr, ObjectId, Result, Token};
use crate::border::{put, require};
use crate::memory::{self, Kind as Memory};
use crate::pool::sharing::{descriptor, given};
use crate::pool::{Origin, Pool, home, put_pool, resolve};
use crate::process::Process;
use crate::state::{device_id, index_of, ready};
use crate::{context, vmm};

pub unsafe fn cuMemPoolExportToShareableHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_void,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    descriptor(kind, flags)?;
    require(
        !out.is_null() && pool.origin == Origin::Created && pool.handle_types & vmm::POSIX != 0,
    )?;
    let fd = process.backend.export_pool(home(process, &pool)?, pool.id())?;
    // SAFETY: for this type of handle the out parameter is an `int`.
    unsafe { put(out.cast::<c_int>(), fd.into_raw_fd()) }
}

pub unsafe fn cuMemPoolImportFromShareableHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemoryPool,
    handle: *mut c_void,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Result<()> {
    ready(process)?;
    descriptor(kind, flags)?;
    require(!out.is_null())?;
    // SAFETY: the program's descriptor.
    let fd = unsafe { given(handle) }?;
    let id = process.pools.table.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let imported = process.backend.import_pool(ObjectId(id), fd).and_then(|device| {
        index_of(process, device).inspect_err(|_| {
            let _ = process.backend.pool_destroy(device, ObjectId(id));
        })
    });
    match imported {
        Ok(device) => {
            let pool =
                Arc::new(Pool { handle: id, device, origin: Origin::Imported, handle_types: 0 });
            process.pools.table.fill(id, pool.clone());
            // SAFETY: the program's out parameter.
            unsafe { put_pool(out, &pool) }
        }
        Err(error) => {
            process.pools.table.release(id);
            Err(error)
        }
    }
}

pub unsafe fn cuMemPoolExportPointer<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemPoolPtrExportData,
    address: CUdeviceptr,
) -> Result<()> {
    ready(process)?;
    require(!out.is_null())?;
    let address = DevicePtr(address);
    let (base, bytes, allocation) =
        memory::find(process, address.unified()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let Memory::Pooled(pool) = allocation.kind else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    require(
        base == address.unified()
            && process
                .pools
                .table
                .get(pool)
                .is_some_and(|pool| pool.handle_types & vmm::POSIX != 0),
    )?;
    let reserved =
        process.backend.share_pooled(device_id(process, allocation.device)?, address, bytes)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUmemPoolPtrExportData { reserved }) }
}

pub unsafe fn cuMemPoolImportPointer<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    require(!out.is_null() && pool.origin == Origin::Imported)?;
    // SAFETY: null or the program's structure.
    let token: Token = unsafe { data.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.reserved;
    let here = context::current(process)?;
    let (address, bytes) = here.note(process.backend.open_pooled(here.id, pool.id(), &token))?;
    memory::insert_on(
        process,
        &here,
        pool.device,
        address.unified(),
        bytes,
        Memory::Pooled(pool.handle),
    );
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}
