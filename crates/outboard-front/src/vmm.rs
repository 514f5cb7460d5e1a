//! Virtual memory: address ranges, physical memory, and which is mapped where.

use std::sync::Arc;

use outboard_abi::{
    CUmemAccess_flags_enum as Flags, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation,
    CUmemLocationType_enum as Location, CUresult,
};
use parking_lot::Mutex;

use crate::backend::{Backend, DeviceId, DevicePtr, ObjectId, Result};
use crate::border::require;
use crate::process::{Front, Process};
use crate::state::{self, ready};

pub(crate) use crate::parts::vmm::{Mapping, Physical, Space, Users};

impl Physical {
    /// Takes away a user; with the last one the memory goes.
    pub(crate) fn drop_user<B: Backend>(
        &self,
        process: &'static Process<B>,
        which: impl FnOnce(&mut Users) -> &mut u32,
    ) -> Result<()> {
        let mut users = self.users.lock();
        let count = which(&mut users);
        *count = count.checked_sub(1).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if users.handles == 0 && users.mappings == 0 {
            process.vmm.memory.remove(self.handle);
            return process.backend.vmm_release(state::device_id(process, self.device)?, self.id());
        }
        Ok(())
    }
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`: descriptors are what processes of one machine pass
/// on. Fabric handles would name memory to machines that are none of the session's.
pub(crate) const POSIX: u32 = 1;

/// Physical memory whose handle the program still holds.
pub(crate) fn resolve(front: &'static Front, handle: u64) -> Result<Arc<Physical>> {
    ready(front)?;
    let memory = front.vmm.memory.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(memory.users.lock().handles > 0)?;
    Ok(memory)
}

/// Base and bytes of the reservation that holds `address`.
pub(crate) fn reservation(front: &'static Front, address: DevicePtr) -> Option<(DevicePtr, u64)> {
    front.vmm.space.lock().reservations.find(address).map(|(base, bytes, _)| (base, bytes))
}

/// Handle types by which what is mapped at `address` may be shared.
pub(crate) fn handle_types(front: &'static Front, address: DevicePtr) -> u32 {
    front
        .vmm
        .space
        .lock()
        .mappings
        .find(address)
        .map_or(0, |(_, _, mapping)| mapping.memory.prop.requestedHandleTypes.0)
}

/// A device's access to the mapping at `address`.
pub(crate) fn access_of(front: &'static Front, address: DevicePtr, device: usize) -> Option<u32> {
    let space = front.vmm.space.lock();
    let (_, _, mapping) = space.mappings.find(address)?;
    Some(mapping.access.iter().find(|(index, _)| *index == device).map_or(0, |(_, flags)| *flags))
}

/// Gives physical memory a handle; `make` has the back end make it under that name, and returns
/// bytes, properties and the visible device.
pub(crate) fn adopt_with(
    front: &'static Front,
    make: impl FnOnce(ObjectId) -> Result<(u64, CUmemAllocationProp, usize)>,
) -> Result<u64> {
    let handle = front.vmm.memory.reserve().ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    match make(ObjectId(handle)) {
        Ok((bytes, prop, device)) => {
            let users = Mutex::new(Users { handles: 1, mappings: 0 });
            front
                .vmm
                .memory
                .fill(handle, Arc::new(Physical { handle, bytes, prop, device, users }));
            Ok(handle)
        }
        Err(error) => {
            front.vmm.memory.release(handle);
            Err(error)
        }
    }
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

/// The same by the back end's names.
pub(crate) fn named(
    front: &'static Front,
    access: &[(usize, u32)],
) -> Result<Vec<(DeviceId, u32)>> {
    access.iter().map(|(index, flags)| Ok((state::device_id(front, *index)?, *flags))).collect()
}

/// The visible device's index of a location, which must be one.
pub(crate) fn location(front: &'static Front, location: &CUmemLocation) -> Result<usize> {
    match location.type_ {
        Location::CU_MEM_LOCATION_TYPE_DEVICE => Ok(state::device(front, location.id)?.0),
        // The program's processor is not where the memory is.
        Location::CU_MEM_LOCATION_TYPE_HOST
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA
        | Location::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}
