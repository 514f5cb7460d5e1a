//! Memory pools.

pub(crate) mod sharing;

use std::sync::Arc;

use outboard_abi::{CUmemoryPool, CUresult};

use crate::backend::{Backend, DeviceId, DevicePtr, ObjectId, Result};
use crate::border::put;
use crate::context::Here;
use crate::memory::{self, Kind as Memory};
use crate::process::{Front, Process};
use crate::state::{device_id, ready};

pub(crate) use crate::parts::pool::{OfDevice, Origin, Pool};

pub(crate) fn resolve(front: &'static Front, pool: CUmemoryPool) -> Result<Arc<Pool>> {
    ready(front)?;
    front.pools.table.get(pool as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) fn of_device(front: &'static Front, device: usize) -> OfDevice {
    front.pools.devices.read().get(device).cloned().unwrap_or_default()
}

pub(crate) fn change(front: &'static Front, device: usize, change: impl FnOnce(&mut OfDevice)) {
    let mut devices = front.pools.devices.write();
    if devices.len() <= device {
        devices.resize(device + 1, OfDevice::default());
    }
    change(&mut devices[device]);
}

/// A new pool's handle, under whose name the backend makes it.
pub(crate) fn adopt(
    front: &'static Front,
    device: usize,
    origin: Origin,
    handle_types: u32,
    make: impl FnOnce(ObjectId) -> Result<()>,
) -> Result<Arc<Pool>> {
    let handle = front.pools.table.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if let Err(error) = make(ObjectId(handle)) {
        front.pools.table.release(handle);
        return Err(error);
    }
    let pool = Arc::new(Pool { handle, device, origin, handle_types });
    front.pools.table.fill(handle, pool.clone());
    Ok(pool)
}

/// The device of a pool, by the back end's name.
pub(crate) fn home(front: &'static Front, pool: &Pool) -> Result<DeviceId> {
    device_id(front, pool.device)
}

pub(crate) fn default_of<B: Backend>(
    process: &'static Process<B>,
    device: usize,
) -> Result<Arc<Pool>> {
    if let Some(pool) = of_device(process, device).default {
        return Ok(pool);
    }
    let name = device_id(process, device)?;
    let pool =
        adopt(process, device, Origin::Default, 0, |id| process.backend.pool_default(id, name))?;
    // Of two threads that were here at once, the first one's stays; the other's is one more name
    // for the same pool.
    change(process, device, |pools| {
        pools.default.get_or_insert(pool);
    });
    of_device(process, device).default.ok_or(CUresult::CUDA_ERROR_UNKNOWN)
}

/// The pool's handle, for `CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE`; 0 is a device's default pool.
pub(crate) fn handle_of<B: Backend>(process: &'static Process<B>, pool: u64, device: usize) -> u64 {
    if pool != 0 { pool } else { default_of(process, device).map_or(0, |pool| pool.handle) }
}

/// Handle types by which allocations of a pool may be shared; 0 is a device's default pool, which
/// has none.
pub(crate) fn handle_types(front: &'static Front, pool: u64) -> u32 {
    front.pools.table.get(pool).map_or(0, |pool| pool.handle_types)
}

/// # Safety
/// `out` is the program's out parameter.
pub(crate) unsafe fn put_pool(out: *mut CUmemoryPool, pool: &Pool) -> Result<()> {
    // SAFETY: by the contract above.
    unsafe { put(out, pool.handle as CUmemoryPool) }
}

/// Allocates from the pool that is current for the stream's device.
pub(crate) fn alloc_from_current<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    bytes: u64,
    stream: crate::backend::StreamId,
) -> Result<DevicePtr> {
    if let Some(outcome) = crate::capture::allocate(process, here, stream, bytes) {
        return outcome;
    }
    crate::capture::refuse_unsafe(process)?;
    let current = of_device(process, here.context.device).current;
    let (address, pool) = match current {
        Some(pool) => (process.backend.pool_alloc(here.id, pool.id(), bytes, stream), pool.handle),
        None => (process.backend.memory_alloc_async(here.id, bytes, stream), 0),
    };
    let address = here.note(address)?;
    memory::insert(process, here, address.unified(), bytes, Memory::Pooled(pool));
    Ok(address)
}
