//! Memory pools.

mod sharing;

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use outboard_abi::{
    CUdevice, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation,
    CUmemPool_attribute, CUmemPool_attribute_enum as A, CUmemPoolProps, CUmemoryPool, CUresult,
    CUstream,
};

use crate::backend::{Backend, DevicePtr, PoolKind, Result};
use crate::border::{put, require, slice};
use crate::memory::{self, Kind as Memory};
use crate::pool::{Origin, Pool, adopt, change, default_of, home, of_device, put_pool, resolve};
use crate::process::{Front, Process};
use crate::several::one_server;
use crate::state::{self, device_id, ready};
use crate::{stream, vmm};

pub use sharing::*;

fn current_of<B: Backend>(process: &'static Process<B>, device: usize) -> Result<Arc<Pool>> {
    of_device(process, device).current.map_or_else(|| default_of(process, device), Ok)
}

/// The device of a location. Pools of host memory are not reported by any device here.
///
/// # Safety
/// `place` is null or the program's structure.
unsafe fn device_at(
    front: &'static Front,
    place: *const CUmemLocation,
    kind: CUmemAllocationType,
) -> Result<usize> {
    // SAFETY: by the contract above.
    let place = unsafe { place.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    match kind {
        CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED => vmm::location(front, place),
        CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED => {
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub unsafe fn cuDeviceGetDefaultMemPool<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemoryPool,
    dev: CUdevice,
) -> Result<()> {
    let pool = default_of(process, state::device(process, dev)?.0)?;
    // SAFETY: the program's out parameter.
    unsafe { put_pool(out, &pool) }
}

pub unsafe fn cuDeviceGetMemPool<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemoryPool,
    dev: CUdevice,
) -> Result<()> {
    let pool = current_of(process, state::device(process, dev)?.0)?;
    // SAFETY: the program's out parameter.
    unsafe { put_pool(out, &pool) }
}

fn set_current(front: &'static Front, device: usize, pool: CUmemoryPool) -> Result<()> {
    let pool = resolve(front, pool)?;
    require(pool.device == device && pool.origin != Origin::Imported)?;
    change(front, device, |pools| {
        pools.current = Some(pool).filter(|pool| pool.origin != Origin::Default)
    });
    Ok(())
}

pub unsafe fn cuDeviceSetMemPool<B: Backend>(
    process: &'static Process<B>,
    dev: CUdevice,
    pool: CUmemoryPool,
) -> Result<()> {
    set_current(process, state::device(process, dev)?.0, pool)
}

pub unsafe fn cuMemGetDefaultMemPool<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemoryPool,
    place: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Result<()> {
    ready(process)?;
    // SAFETY: the program's structures.
    unsafe { put_pool(out, &*default_of(process, device_at(process, place, kind)?)?) }
}

pub unsafe fn cuMemGetMemPool<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemoryPool,
    place: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Result<()> {
    ready(process)?;
    // SAFETY: the program's structures.
    unsafe { put_pool(out, &*current_of(process, device_at(process, place, kind)?)?) }
}

pub unsafe fn cuMemSetMemPool<B: Backend>(
    process: &'static Process<B>,
    place: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Result<()> {
    ready(process)?;
    // SAFETY: the program's structure.
    set_current(process, unsafe { device_at(process, place, kind) }?, pool)
}

pub unsafe fn cuMemPoolCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemoryPool,
    props: *const CUmemPoolProps,
) -> Result<()> {
    ready(process)?;
    require(!out.is_null())?;
    // SAFETY: null or the program's structure.
    let props = unsafe { props.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: a part of the program's structure.
    let device = unsafe { device_at(process, &raw const props.location, props.allocType) }?;
    if props.handleTypes.0 & !vmm::POSIX != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let kind = PoolKind {
        device: device_id(process, device)?,
        handle_types: props.handleTypes.0,
        max_bytes: props.maxSize as u64,
        usage: props.usage.into(),
    };
    crate::capture::refuse_unsafe(process)?;
    let pool = adopt(process, device, Origin::Created, kind.handle_types, |id| {
        process.backend.pool_create(id, kind)
    })?;
    // SAFETY: the program's out parameter.
    unsafe { put_pool(out, &pool) }
}

pub unsafe fn cuMemPoolDestroy<B: Backend>(
    process: &'static Process<B>,
    pool: CUmemoryPool,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    require(pool.origin != Origin::Default)?;
    process.pools.table.remove(pool.handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // Where it was the current pool, the default pool becomes current again.
    change(process, pool.device, |pools| {
        pools.current.take_if(|current| current.handle == pool.handle);
    });
    process.backend.pool_destroy(home(process, &pool)?, pool.id())
}

pub unsafe fn cuMemPoolTrimTo<B: Backend>(
    process: &'static Process<B>,
    pool: CUmemoryPool,
    keep: usize,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    crate::capture::refuse_unsafe(process)?;
    process.backend.pool_trim(home(process, &pool)?, pool.id(), keep as u64)
}

/// Whether an attribute's value is an `int`; the others are 64 bits.
fn is_flag(attribute: CUmemPool_attribute) -> Result<bool> {
    match attribute {
        A::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | A::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => Ok(true),
        A::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        | A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
        | A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
        | A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT
        | A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => Ok(false),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub unsafe fn cuMemPoolGetAttribute<B: Backend>(
    process: &'static Process<B>,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    out: *mut c_void,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    let flag = is_flag(attribute)?;
    require(!out.is_null())?;
    crate::capture::refuse_unsafe(process)?;
    let value = process.backend.pool_attribute(home(process, &pool)?, pool.id(), attribute.0)?;
    // SAFETY: the program's out parameter, of the attribute's type.
    unsafe {
        match flag {
            true => put(out.cast::<c_int>(), value as c_int),
            false => put(out.cast::<u64>(), value),
        }
    }
}

pub unsafe fn cuMemPoolSetAttribute<B: Backend>(
    process: &'static Process<B>,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    let flag = is_flag(attribute)?;
    require(!value.is_null())?;
    // SAFETY: the program's value, of the attribute's type.
    let value = unsafe {
        match flag {
            true => u64::from(*value.cast::<c_int>() != 0),
            false => *value.cast::<u64>(),
        }
    };
    match attribute {
        A::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT | A::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // High-water marks can only be reset.
        A::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | A::CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
            require(value == 0)?
        }
        _ => {}
    }
    crate::capture::refuse_unsafe(process)?;
    process.backend.pool_set_attribute(home(process, &pool)?, pool.id(), attribute.0, value)
}

pub unsafe fn cuMemPoolSetAccess<B: Backend>(
    process: &'static Process<B>,
    pool: CUmemoryPool,
    map: *const CUmemAccessDesc,
    count: usize,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    // SAFETY: the program gives `count` of them.
    let access = unsafe { slice(map, count) }?
        .iter()
        .map(|desc| vmm::access(process, desc))
        .collect::<Result<Vec<_>>>()?;
    // A device's own memory cannot be taken from it.
    require(access.iter().all(|(device, flags)| *device != pool.device || *flags == 3))?;
    let access = vmm::named(process, &access)?;
    if access.is_empty() {
        Ok(())
    } else {
        process.backend.pool_set_access(home(process, &pool)?, pool.id(), &access)
    }
}

pub unsafe fn cuMemPoolGetAccess<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemAccess_flags,
    pool: CUmemoryPool,
    place: *mut CUmemLocation,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    require(!out.is_null())?;
    // SAFETY: null or the program's structure.
    let device = vmm::location(
        process,
        unsafe { place.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
    )?;
    let flags = process.backend.pool_access(
        home(process, &pool)?,
        pool.id(),
        device_id(process, device)?,
    )?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, CUmemAccess_flags(flags)) }
}

pub unsafe fn cuMemAllocFromPoolAsync<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Result<()> {
    let pool = resolve(process, pool)?;
    require(pool.origin != Origin::Imported)?;
    let (here, stream) = stream::find(process, stream)?;
    require(!out.is_null())?;
    let captured = match bytes {
        0 => None,
        _ => crate::capture::allocate(process, &here, stream, bytes as u64),
    };
    let address = match (bytes, captured) {
        (0, _) => DevicePtr::NULL,
        (_, Some(outcome)) => outcome?,
        (_, None) => {
            crate::capture::refuse_unsafe(process)?;
            one_server(here.id.server(), [home(process, &pool)?.server()])?;
            let address =
                here.note(process.backend.pool_alloc(here.id, pool.id(), bytes as u64, stream))?;
            memory::insert_on(
                process,
                &here,
                pool.device,
                address.unified(),
                bytes as u64,
                Memory::Pooled(pool.handle),
            );
            address
        }
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}
