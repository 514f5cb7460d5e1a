//! Virtual memory: address ranges, physical memory, and which is mapped where.

use core::ffi::{c_ulonglong, c_void};
use std::sync::Arc;

use outboard_abi::{
    CUdeviceptr, CUmemAccess_flags_enum as Flags, CUmemAccessDesc,
    CUmemAllocationGranularity_flags_enum as Granularity, CUmemAllocationProp, CUmemAllocationType_enum,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType_enum as Location, CUresult,
};
use parking_lot::Mutex;

use crate::backend::{Backend, MemoryKind, ObjectId, Result};
use crate::border::{put, require, slice};
use crate::handles::{Kind, Table};
use crate::memory;
use crate::process::{Front, Process};
use crate::ranges::Ranges;
use crate::state::{self, ready};

/// Physical memory.
pub(crate) struct Physical {
    pub(crate) handle: u64,
    pub(crate) bytes: u64,
    pub(crate) prop: CUmemAllocationProp,
    /// The visible device's index.
    pub(crate) device: usize,
    users: Mutex<Users>,
}

// SAFETY: the pointer in `prop` is for other systems; it is kept as a number and never followed.
unsafe impl Send for Physical {}
// SAFETY: as above.
unsafe impl Sync for Physical {}

/// Who keeps physical memory alive.
#[derive(Default)]
struct Users {
    /// Created, imported or retained, and not released so often.
    handles: u32,
    mappings: u32,
}

impl Physical {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }

    /// Takes away a user; with the last one the memory goes.
    fn drop_user<B: Backend>(
        &self,
        process: &'static Process<B>,
        which: impl FnOnce(&mut Users) -> &mut u32,
    ) -> Result<()> {
        let mut users = self.users.lock();
        let count = which(&mut users);
        *count = count.checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if users.handles == 0 && users.mappings == 0 {
            process.vmm.memory.remove(self.handle);
            return process.backend.vmm_release(self.id());
        }
        Ok(())
    }
}

/// A mapped range.
struct Mapping {
    memory: Arc<Physical>,
    /// What each visible device may do, by index; those that may do nothing are left out.
    access: Vec<(usize, u32)>,
}

/// What address space is used for. Held while the backend changes it, so that both agree.
struct Space {
    reservations: Ranges<()>,
    mappings: Ranges<Mapping>,
}

/// Physical memory and address space of a process.
pub(crate) struct Vmm {
    memory: Table<Physical>,
    space: Mutex<Space>,
    /// What granularities were asked for, minimal or recommended, and the answers in bytes: they do not change.
    granularities: Mutex<Vec<((MemoryKind, bool), u64)>>,
}

impl Vmm {
    pub(crate) const fn new() -> Vmm {
        Vmm {
            memory: Table::new(Kind::Memory),
            space: Mutex::new(Space { reservations: Ranges::new(), mappings: Ranges::new() }),
            granularities: Mutex::new(Vec::new()),
        }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let space = self.space.lock();
        self.memory.count() + space.reservations.count() + space.mappings.count()
    }
}

/// What this many bytes must be multiples of; every device of today has the same.
const GRANULE: u64 = 2 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: descriptors are what processes of one machine pass on. Fabric handles would name memory
/// to machines that are none of the session's.
pub(crate) const POSIX: u32 = 1;

/// Physical memory whose handle the program still holds.
pub(crate) fn resolve(front: &'static Front, handle: u64) -> Result<Arc<Physical>> {
    ready(front)?;
    let memory = front.vmm.memory.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(memory.users.lock().handles > 0)?;
    Ok(memory)
}

/// Base and bytes of the reservation that holds `address`.
pub(crate) fn reservation(front: &'static Front, address: u64) -> Option<(u64, u64)> {
    front.vmm.space.lock().reservations.find(address).map(|(base, bytes, ())| (base, bytes))
}

/// Handle types by which what is mapped at `address` may be shared.
pub(crate) fn handle_types(front: &'static Front, address: u64) -> u32 {
    front
        .vmm
        .space
        .lock()
        .mappings
        .find(address)
        .map_or(0, |(_, _, mapping)| mapping.memory.prop.requestedHandleTypes.0)
}

/// What a device may do with what is mapped at `address`.
pub(crate) fn access_of(front: &'static Front, address: u64, device: usize) -> Option<u32> {
    let space = front.vmm.space.lock();
    let (_, _, mapping) = space.mappings.find(address)?;
    Some(mapping.access.iter().find(|(index, _)| *index == device).map_or(0, |(_, flags)| *flags))
}

/// Physical memory that a program describes, and the device it is of.
fn kind(front: &'static Front, prop: &CUmemAllocationProp) -> Result<(MemoryKind, usize)> {
    require(prop.type_ == CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED)?;
    let device = match prop.location.type_ {
        Location::CU_MEM_LOCATION_TYPE_DEVICE => prop.location.id,
        // Memory of the server's processors, for which devices here report no support.
        Location::CU_MEM_LOCATION_TYPE_HOST
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    if prop.requestedHandleTypes.0 & !POSIX != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let (index, device) = state::device(front, device)?;
    let kind = MemoryKind {
        device: device.ordinal,
        handle_types: prop.requestedHandleTypes.0,
        compression: prop.allocFlags.compressionType.into(),
        usage: prop.allocFlags.usage.into(),
    };
    Ok((kind, index))
}

/// Gives physical memory a handle; `make` has the backend make it under that name, and tells bytes, properties and the visible device.
pub(crate) fn adopt_with(
    front: &'static Front,
    make: impl FnOnce(ObjectId) -> Result<(u64, CUmemAllocationProp, usize)>,
) -> Result<u64> {
    let handle = front.vmm.memory.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    match make(ObjectId(handle)) {
        Ok((bytes, prop, device)) => {
            let users = Mutex::new(Users { handles: 1, mappings: 0 });
            front.vmm.memory.fill(handle, Arc::new(Physical { handle, bytes, prop, device, users }));
            Ok(handle)
        }
        Err(error) => {
            front.vmm.memory.release(handle);
            Err(error)
        }
    }
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
    let (kind, _) = kind(process, unsafe { prop.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
    let recommended = match option {
        Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM => false,
        Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED => true,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
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
    let mut space = process.vmm.space.lock();
    let address = process.backend.vmm_reserve(bytes, alignment, hint)?;
    space.reservations.insert(address, bytes, ());
    // SAFETY: the program's out parameter.
    unsafe { put(out, address) }
}

pub unsafe fn cuMemAddressFree<B: Backend>(
    process: &'static Process<B>,
    address: CUdeviceptr,
    bytes: usize,
) -> Result<()> {
    ready(process)?;
    let bytes = bytes as u64;
    let mut space = process.vmm.space.lock();
    require(space.reservations.find(address).is_some_and(|(base, len, ())| (base, len) == (address, bytes)))?;
    require(!space.mappings.overlaps(address, bytes))?;
    process.backend.vmm_free(address, bytes)?;
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
    let handle =
        adopt_with(process, |id| process.backend.vmm_create(id, bytes, kind).map(|()| (bytes, *prop, device)))?;
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
    let (bytes, offset) = (bytes as u64, offset as u64);
    require(flags == 0 && bytes > 0 && [address, bytes, offset].iter().all(|n| n.is_multiple_of(GRANULE)))?;
    require(offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes))?;
    let mut space = process.vmm.space.lock();
    let inside = |(base, len, ()): (u64, u64, &())| bytes <= len - (address - base);
    require(space.reservations.find(address).is_some_and(inside) && !space.mappings.overlaps(address, bytes))?;
    process.backend.vmm_map(address, bytes, offset, memory.id())?;
    memory.users.lock().mappings += 1;
    memory::insert_mapped(process, memory.device, address, bytes, memory.handle);
    space.mappings.insert(address, bytes, Mapping { memory, access: Vec::new() });
    Ok(())
}

/// The bases of the mappings that make up a range, if they do so without a rest.
fn whole(space: &Space, address: u64, bytes: u64) -> Result<Vec<u64>> {
    let end = address.checked_add(bytes).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (mut bases, mut at) = (Vec::new(), address);
    while at < end {
        let (base, len, _) = space.mappings.find(at).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        require(base == at && len <= end - at)?;
        bases.push(base);
        at += len;
    }
    require(!bases.is_empty())?;
    Ok(bases)
}

pub unsafe fn cuMemUnmap<B: Backend>(process: &'static Process<B>, address: CUdeviceptr, bytes: usize) -> Result<()> {
    ready(process)?;
    let mut space = process.vmm.space.lock();
    let bases = whole(&space, address, bytes as u64)?;
    process.backend.vmm_unmap(address, bytes as u64)?;
    for base in bases {
        memory::remove(process, base, |kind| matches!(kind, memory::Kind::Mapped { .. }));
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
    let mut space = process.vmm.space.lock();
    let bases = whole(&space, address, bytes as u64)?;
    let devices = &ready(process)?.devices;
    let ordinals: Vec<(u32, u32)> = access.iter().map(|(index, flags)| (devices[*index].ordinal, *flags)).collect();
    process.backend.vmm_set_access(address, bytes as u64, &ordinals)?;
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

/// The visible device's index, and what it may do.
pub(crate) fn access(front: &'static Front, desc: &CUmemAccessDesc) -> Result<(usize, u32)> {
    let device = location(front, &desc.location)?;
    match desc.flags {
        Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
        | Flags::CU_MEM_ACCESS_FLAGS_PROT_READ
        | Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Ok((device, desc.flags.0)),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// The visible device's index of a location, which must be one.
pub(crate) fn location(front: &'static Front, location: &CUmemLocation) -> Result<usize> {
    match location.type_ {
        Location::CU_MEM_LOCATION_TYPE_DEVICE => Ok(state::device(front, location.id)?.0),
        // The program's processor is not where the memory is.
        Location::CU_MEM_LOCATION_TYPE_HOST
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
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
    let device = location(process, unsafe { place.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
    let flags = access_of(process, address, device).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
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
    let (_, _, mapping) = space.mappings.find(address as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    mapping.memory.users.lock().handles += 1;
    // SAFETY: the program's out parameter.
    unsafe { put(out, mapping.memory.handle) }
}
