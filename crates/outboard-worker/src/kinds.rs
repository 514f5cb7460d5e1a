//! Where memory of a device lies, and of which kind it is.

use outboard_abi::{
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUresult,
};
use outboard_wire::device_id::DeviceId;

pub(crate) fn location(device: DeviceId) -> CUmemLocation {
    CUmemLocation {
        type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: device.ordinal() as i32,
    }
}

/// Memory of a device: which handles it may have, and whether network adapters may use it.
pub(crate) fn memory_kind(
    location: CUmemLocation,
    handle_types: u32,
    direct: bool,
) -> CUmemAllocationProp {
    // SAFETY: a plain structure of numbers and a pointer, all of which may be zero.
    let mut prop: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    prop.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = location;
    prop.requestedHandleTypes = CUmemAllocationHandleType(handle_types);
    prop.allocFlags.gpuDirectRDMACapable = u8::from(direct);
    prop
}

/// Handle types that a client may ask for: descriptors, which never leave the server.
pub(crate) fn posix(handle_types: u32) -> Result<CUmemAllocationHandleType, CUresult> {
    let types = CUmemAllocationHandleType(handle_types);
    match types {
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE
        | CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => Ok(types),
        _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
}
