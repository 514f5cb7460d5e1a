//! Virtual memory.

use core::ffi::{c_ulonglong, c_void};

use outboard_abi::{
    CUdeviceptr, CUmemAccessDesc, CUmemAllocationGranularity_flags_enum as Granularity,
    CUmemAllocationProp, CUmemAllocationType_enum, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType_enum as Location, CUresult,
};

use crate::backend::{Backend, DeviceId, DevicePtr, MemoryKind, PartChange, Result};
use crate::border::{put, require, slice};
use crate::process::{Front, Process};
use crate::several::one_server;
use crate::state::{self, ready};
use crate::vmm::{Mapping, POSIX, Space, access, access_of, adopt_with, location, named, resolve};
use crate::{context, memory};

/// The granularity of sizes and addresses; every device of today has the same.
const GRANULE: u64 = 2 << 20;

/// Physical memory that a program describes, and the device it is of.
fn kind(front: &'static Front, prop: &CUmemAllocationProp) -> Result<(MemoryKind, usize)> {
    require(prop.type_ == CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED)?;
    let device = match prop.location.type_ {
        Location::CU_MEM_LOCATION_TYPE_DEVICE => prop.location.id,
        // Memory of the server's processors, for which devices here report no support.
        Location::CU_MEM_LOCATION_TYPE_HOST | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    if prop.requestedHandleTypes.0 & !POSIX != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let (index, device) = state::device(front, device)?;
    let kind = MemoryKind {
        device: device.id,
        handle_types: prop.requestedHandleTypes.0,
        compression: prop.allocFlags.compressionType.into(),
        usage: prop.allocFlags.usage.into(),
    };
    Ok((kind, index))
}

pub unsafe fn cuMemGetAllocationGranularity<B: Backend>(
    process: &'static Process<B>,
    out: *mut usize,
    prop: *const CUmemAllocationProp,
    option: Granularity,
) -> Result<()> {
    ready(process)?;
    require(!out.is_null())?;
    // SAFETY: null or the program's structure.
    let prop = unsafe { prop.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let recommended = match option {
        Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM => false,
        Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED => true,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    let Ok((kind, _)) = kind(process, prop) else {
        // It is no question whether there could be such memory.
        require(prop.type_ == CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED)?;
        // SAFETY: the program's out parameter.
        return unsafe { put(out, GRANULE as usize) };
    };
    let known = process
        .vmm
        .granularities
        .lock()
        .iter()
        .find(|(asked, _)| *asked == (kind, recommended))
        .map(|(_, bytes)| *bytes);
    let granularity = match known {
        Some(granularity) => granularity,
        None => {
            let granularity = process.backend.vmm_granularity(kind, recommended)?;
            // Programs use few kinds of memory; two threads may note the same one.
            let mut known = process.vmm.granularities.lock();
            if known.len() < 64 {
                known.push(((kind, recommended), granularity));
            }
            granularity
        }
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, granularity as usize) }
}

/// The device whose server is to have a reservation: that of the current context, if there is one.
fn home(front: &'static Front) -> Result<DeviceId> {
    state::device_id(front, context::top().map_or(0, |context| context.device))
}

pub unsafe fn cuMemAddressReserve<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdeviceptr,
    bytes: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: c_ulonglong,
) -> Result<()> {
    ready(process)?;
    let (bytes, alignment) = (bytes as u64, alignment as u64);
    require(!out.is_null() && flags == 0 && bytes > 0 && bytes.is_multiple_of(GRANULE))?;
    require(alignment == 0 || alignment.is_power_of_two())?;
    let home = home(process)?;
    let mut space = process.vmm.space.lock();
    let address = process.backend.vmm_reserve(home, bytes, alignment, DevicePtr(hint))?;
    space.reservations.insert(address, bytes, home);
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

pub unsafe fn cuMemAddressFree<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    ready(process)?;
    let (address, bytes) = (DevicePtr(address), bytes as u64);
    let mut space = process.vmm.space.lock();
    let found =
        space.reservations.find(address).filter(|(base, len, _)| (*base, *len) == (address, bytes));
    let (_, _, home) = found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(!space.mappings.overlaps(address, bytes))?;
    process.backend.vmm_free(*home, address, bytes)?;
    space.reservations.remove(address);
    Ok(())
}

pub unsafe fn cuMemCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemGenericAllocationHandle,
    bytes: usize,
    prop: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> Result<()> {
    ready(process)?;
    let bytes = bytes as u64;
    require(!out.is_null() && flags == 0 && bytes > 0 && bytes.is_multiple_of(GRANULE))?;
    // SAFETY: null or the program's structure.
    let prop = unsafe { prop.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (kind, device) = kind(process, prop)?;
    let handle = adopt_with(process, |id| {
        process.backend.vmm_create(id, bytes, kind).map(|()| (bytes, *prop, device))
    })?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle) }
}

pub unsafe fn cuMemRelease<B: Backend>(
    process: &'static Process<B>,
    handle: CUmemGenericAllocationHandle,
) -> Result<()> {
    resolve(process, handle)?.drop_user(process, |users| &mut users.handles)
}

pub unsafe fn cuMemMap<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> Result<()> {
    let memory = resolve(process, handle)?;
    let (address, bytes) = (DevicePtr(address), bytes as u64);
    require(
        flags == 0 && bytes > 0 && [address.0, bytes].iter().all(|n| n.is_multiple_of(GRANULE)),
    )?;
    if offset != 0 || bytes != memory.bytes {
        // NVIDIA's driver maps physical memory as a whole.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut space = process.vmm.space.lock();
    let inside = |(base, len, _): &(DevicePtr, u64, &DeviceId)| bytes <= len - address.since(*base);
    let found = space.reservations.find(address).filter(inside);
    let home = *found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.2;
    require(!space.mappings.overlaps(address, bytes))?;
    let server = state::device_id(process, memory.device)?.server();
    one_server(home.server(), [server])?;
    process.backend.vmm_map(home, address, bytes, 0, memory.id())?;
    memory.users.lock().mappings += 1;
    memory::insert_mapped(process, (memory.device, server), address, bytes, memory.handle);
    space.mappings.insert(address, bytes, Mapping { memory, access: Vec::new() });
    Ok(())
}

/// The mappings of a range, each by its base and bytes, if none of them is in it only in part, and
/// a device of the server that has them. `None` if the range begins in no reservation.
fn within(
    space: &mut Space,
    address: DevicePtr,
    bytes: u64,
) -> Option<(DeviceId, Vec<(DevicePtr, u64)>)> {
    let end = address.checked_add(bytes)?;
    let (_, _, home) = space.reservations.find(address)?;
    let home = *home;
    let begins_before = space.mappings.find(address).is_some_and(|(base, ..)| base != address);
    let found = space.mappings.beginning_in(address..end).map(|(base, len, _)| (base, len));
    let found: Vec<_> = found.collect();
    let ends_behind = found.last().is_some_and(|(base, len)| *len > end.since(*base));
    (bytes > 0 && !begins_before && !ends_behind).then_some((home, found))
}

/// The bases of the mappings that make up a range, if they do so without a rest, and a device of
/// the server that has them.
fn whole(space: &mut Space, address: DevicePtr, bytes: u64) -> Result<(DeviceId, Vec<DevicePtr>)> {
    let (home, found) = within(space, address, bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(found.iter().map(|(_, len)| len).sum::<u64>() == bytes)?;
    Ok((home, found.into_iter().map(|(base, _)| base).collect()))
}

/// Mappings, in the order of their addresses, as ranges without holes.
fn runs(mappings: &[(DevicePtr, u64)]) -> Vec<(DevicePtr, u64)> {
    let mut runs: Vec<(DevicePtr, u64)> = Vec::new();
    for (base, len) in mappings {
        match runs.last_mut() {
            Some((start, bytes)) if start.offset(*bytes) == *base => *bytes += len,
            _ => runs.push((*base, *len)),
        }
    }
    runs
}

pub unsafe fn cuMemUnmap<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    ready(process)?;
    let address = DevicePtr(address);
    let mut space = process.vmm.space.lock();
    // What is not mapped stays so.
    let (home, found) =
        within(&mut space, address, bytes as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    for (base, len) in runs(&found) {
        process.backend.vmm_unmap(home, base, len)?;
    }
    for (base, _) in found {
        memory::remove(process, base.unified(), |kind| matches!(kind, memory::Kind::Mapped { .. }));
        if let Some((_, mapping)) = space.mappings.remove(base) {
            mapping.memory.drop_user(process, |users| &mut users.mappings)?;
        }
    }
    Ok(())
}

pub unsafe fn cuMemSetAccess<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
    desc: *const CUmemAccessDesc,
    count: usize,
) -> Result<()> {
    ready(process)?;
    require(count > 0)?;
    // SAFETY: the program gives `count` of them.
    let desc = unsafe { slice(desc, count) }?;
    let access = desc.iter().map(|desc| access(process, desc)).collect::<Result<Vec<_>>>()?;
    let address = DevicePtr(address);
    let mut space = process.vmm.space.lock();
    let (home, bases) = whole(&mut space, address, bytes as u64)?;
    process.backend.vmm_set_access(home, address, bytes as u64, &named(process, &access)?)?;
    for base in bases {
        let Some(mapping) = space.mappings.get_mut(base) else { continue };
        for &(device, flags) in &access {
            mapping.access.retain(|(index, _)| *index != device);
            if flags != 0 {
                mapping.access.push((device, flags));
            }
        }
        memory::set_accessible(process, base, !mapping.access.is_empty());
    }
    Ok(())
}

/// Divides the mapping that has this part, or opens or closes the part.
pub(crate) fn change_part<B: Backend>(
    process: &'static Process<B>,
    address: DevicePtr,
    bytes: u64,
    change: PartChange,
) -> Result<()> {
    ready(process)?;
    let space = process.vmm.space.lock();
    let (base, len, _) = space.mappings.find(address).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(bytes > 0 && bytes <= len - address.since(base))?;
    process.backend.vmm_part(address, bytes, change)
}

pub unsafe fn cuMemGetAccess<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_ulonglong,
    place: *const CUmemLocation,
    address: CUdeviceptr,
) -> Result<()> {
    ready(process)?;
    require(!out.is_null())?;
    // SAFETY: null or the program's structure.
    let device =
        location(process, unsafe { place.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
    let flags =
        access_of(process, DevicePtr(address), device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags.into()) }
}

pub unsafe fn cuMemGetAllocationPropertiesFromHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> Result<()> {
    let memory = resolve(process, handle)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, memory.prop) }
}

pub unsafe fn cuMemRetainAllocationHandle<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> Result<()> {
    ready(process)?;
    require(!out.is_null())?;
    let space = process.vmm.space.lock();
    let (_, _, mapping) =
        space.mappings.find(DevicePtr(address as u64)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    mapping.memory.users.lock().handles += 1;
    // SAFETY: the program's out parameter.
    unsafe { put(out, mapping.memory.handle) }
}
