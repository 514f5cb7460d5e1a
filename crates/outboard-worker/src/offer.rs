//! The platform as a session sees it: the devices that it asks for, with the memory that it may
//! have, without features that need a process on their own machine.

use std::collections::HashMap;

use outboard_driver::Table;
use outboard_wire::handshake::{Refusal, RefusalCode};
use outboard_wire::platform::Platform;

use super::budget::MemoryLimits;
use super::io::Start;
use super::portion::{self, Portion};

/// Leaves the devices that the session asks for, by index and in its order; all of them if it names
/// none.
pub(super) fn choose(platform: &mut Platform, devices: &[u32]) -> Result<(), Refusal> {
    if !devices.is_empty() {
        let pick = |index: &u32| {
            let has = platform.devices.len();
            platform.devices.get(*index as usize).cloned().ok_or_else(|| Refusal {
                code: RefusalCode::NoDevice,
                sentence: format!(
                    "the server has no device {index}: it has {has}, numbered from 0"
                ),
            })
        };
        platform.devices = devices.iter().map(pick).collect::<Result<_, _>>()?;
    }
    Ok(())
}

/// Makes devices have as many multiprocessors as the session may use.
pub(super) fn portions(
    table: &Table,
    platform: &mut Platform,
    start: &Start,
) -> Result<HashMap<i32, Portion>, Refusal> {
    let mut portions = HashMap::new();
    // A session that only queries the platform has no driver that could divide it.
    let has_driver = start.platform.is_none() && !start.only_questions;
    let usual = start.identity.limits.multiprocessors;
    let attribute = outboard_abi::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.0;
    for (place, device) in platform.devices.iter_mut().enumerate() {
        let leased = start.parts.get(place).map(|part| part.percent);
        let percent = usual.into_iter().chain(leased).min();
        let Some(percent) = percent.filter(|percent| *percent < 100 && has_driver) else {
            continue;
        };
        let ordinal = device.id.ordinal() as i32;
        let portion = portion::cut(table, ordinal, percent, start.session).map_err(|error| Refusal {
            code: RefusalCode::WorkerFailed,
            sentence: format!(
                "the session may use {percent} % of the multiprocessors of device {ordinal}, which its driver cannot see to (error {}): that \
                 takes CUDA 12.4",
                error.0
            ),
        })?;
        for (_, value) in device.attributes.iter_mut().filter(|(known, _)| *known == attribute) {
            *value = portion.count as i32;
        }
        portions.insert(ordinal, portion);
    }
    Ok(portions)
}

/// Makes the devices as small as the session may have them, and the account for that.
pub(super) fn limit(platform: &mut Platform, start: &Start) -> MemoryLimits {
    let ordinals = platform.devices.iter().map(|device| device.id.ordinal() + 1).max().unwrap_or(0);
    let mut limits = MemoryLimits::none(ordinals);
    for (place, device) in platform.devices.iter_mut().enumerate() {
        let leased = start.parts.get(place).map(|part| part.memory);
        if let Some(most) = start.identity.limits.memory.into_iter().chain(leased).min() {
            device.total_memory = device.total_memory.min(most);
            limits.set(device.id.ordinal(), most);
        }
    }
    limits
}

/// Features that need a process on the device's own machine are not offered.
pub(super) fn mask_what_is_local(platform: &mut Platform) {
    use outboard_abi::CUdevice_attribute as A;
    let masked = [
        A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH,
        A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
        A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
        A::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
        A::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
        A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
        A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        A::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
        A::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
        A::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
        A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
        A::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
        A::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
        A::CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
    ];
    for device in &mut platform.devices {
        for (attribute, value) in &mut device.attributes {
            if masked.iter().any(|masked| masked.0 == *attribute) {
                *value = 0;
            } else if *attribute == A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES.0 {
                // Of these, sessions share by descriptor.
                *value &= outboard_abi::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 as i32;
            }
        }
    }
}
