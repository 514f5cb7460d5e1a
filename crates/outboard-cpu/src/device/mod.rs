//! What the devices say of themselves.
//!
//! An attribute is what holds here, and what a program would act upon; where a figure has no
//! meaning on a processor (bus width) it is a plausible constant. The compute capability is 9.0, so
//! that PTX for everything up to `sm_90` loads.

mod calls;

use std::fs;

use outboard_abi::CUdevice_attribute_enum as Attribute;
use outboard_front::backend::DeviceId;
use outboard_wire::arrays::ArrayDescriptor;
use outboard_wire::platform::{Device, Platform, SOFTWARE_DEVICE};

use crate::config::Config;

/// Compute capability, 10 × major + minor.
pub(crate) const SM: u32 = 90;
pub(crate) const WARP: u32 = 32;
/// Static shared memory of a block, and dynamic without opting in; bytes.
pub(crate) const SHARED: u32 = 48 << 10;
pub(crate) const SHARED_OPTIN: u32 = 227 << 10;
pub(crate) const SHARED_PER_MULTIPROCESSOR: u32 = 228 << 10;
/// Shared memory that each block takes besides what it asks for; bytes.
pub(crate) const RESERVED_SHARED: u32 = 1 << 10;
pub(crate) const REGISTERS: u32 = 65536;
pub(crate) const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
pub(crate) const BLOCKS_PER_MULTIPROCESSOR: u32 = 32;

/// All devices, as `cuInit` finds them.
pub(crate) fn platform(config: &Config) -> Platform {
    let machine = machine_identity();
    let devices =
        (0..config.devices as u32).map(|ordinal| device(config, ordinal, &machine)).collect();
    Platform {
        driver_version: config.version,
        driver_name: "software device".into(),
        devices,
        lacks: Vec::new(),
    }
}

fn device(config: &Config, ordinal: u32, machine: &str) -> Device {
    let threads = config.threads;
    let plural = if threads == 1 { "" } else { "s" };
    let mut attributes: Vec<(u32, i32)> = attributes(config, ordinal)
        .into_iter()
        .map(|(attribute, value)| (attribute.0, value))
        .collect();
    attributes.sort_unstable();
    Device {
        id: DeviceId::new(ordinal),
        name: format!("{SOFTWARE_DEVICE} ({threads} thread{plural})"),
        uuid: uuid(machine, ordinal),
        total_memory: config.memory,
        attributes,
        stream_priorities: (0, -5),
        peers: (0..config.devices as u32)
            .filter(|other| *other != ordinal)
            .map(DeviceId::new)
            .collect(),
    }
}

fn attributes(config: &Config, ordinal: u32) -> Vec<(Attribute, i32)> {
    vec![
        // Grids and blocks.
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
        (Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE, WARP as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, config.threads as i32),
        (
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
            THREADS_PER_MULTIPROCESSOR as i32,
        ),
        (
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR,
            BLOCKS_PER_MULTIPROCESSOR as i32,
        ),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, REGISTERS as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, REGISTERS as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SHARED_OPTIN as i32),
        (
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR,
            SHARED_PER_MULTIPROCESSOR as i32,
        ),
        (Attribute::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, RESERVED_SHARED as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (SM / 10) as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, (SM % 10) as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2),
        (Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0),
        // Clocks and caches.
        (Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, clock_rate()),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1_600_000),
        (Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 128),
        (Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, last_level_cache()),
        (Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 0),
        // Streams.
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2),
        (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 1),
        // Memory. The device counts as one with memory of its own, since programs are to see the
        // same through a server.
        (Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 200),
        (Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAX_PITCH, i32::MAX),
        // Textures, surfaces and arrays: the sizes are those of GPUs of this compute capability.
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS, 2048),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS, 2048),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, 8192),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, 8192),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS, 2046),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, 268435456),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, 131072),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, 65000),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH, 2097120),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 32768),
        (Attribute::CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER, 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512),
        (Attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32),
        (Attribute::CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512),
        (Attribute::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0),
        // The machine.
        (Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal as i32 + 1),
        (Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_TCC_DRIVER, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID, ordinal as i32),
        (Attribute::CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_NUMA_CONFIG, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_NUMA_ID, -1),
        (Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED, 0),
        (Attribute::CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 0),
    ]
}

/// Most elements along each dimension of an array, by its kind: what the attributes of textures
/// say.
pub(crate) fn most_elements(d: &ArrayDescriptor) -> [u64; 3] {
    const LAYERED: u32 = outboard_abi::CUDA_ARRAY3D_LAYERED;
    const CUBEMAP: u32 = outboard_abi::CUDA_ARRAY3D_CUBEMAP;
    match d.flags & (LAYERED | CUBEMAP) {
        0 if d.height == 0 => [131_072, 0, 0],
        0 if d.depth == 0 => [131_072, 65_536, 0],
        0 => [16_384; 3],
        LAYERED => [32_768, 32_768, 2048],
        CUBEMAP => [32_768, 32_768, 6],
        _ => [32_768, 32_768, 2046],
    }
}

/// Something that stays the same on this machine.
fn machine_identity() -> String {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if !id.trim().is_empty() {
        return id.trim().into();
    }
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A UUID of version 8 (made by rules of our own): FNV-1a over the machine and the ordinal.
fn uuid(machine: &str, ordinal: u32) -> [u8; 16] {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let name = format!("outboard-cpu {ordinal} {machine}");
    let hash = name.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    let mut uuid = hash.to_be_bytes();
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The processor's clock in kHz.
fn clock_rate() -> i32 {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<i32>().ok();
    let named = || {
        let text = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
        let mhz: f64 = line.split(':').nth(1)?.trim().parse().ok()?;
        Some((mhz * 1000.0) as i32)
    };
    let rate = number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").or_else(named);
    rate.filter(|&rate| rate > 0).unwrap_or(2_000_000)
}

/// Bytes of the last-level cache.
fn last_level_cache() -> i32 {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<i32>().ok()?.checked_mul(1024)
    };
    (0..8).filter_map(size).max().unwrap_or(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_differ_and_describe_themselves() {
        let config = Config {
            devices: 3,
            threads: 4,
            memory: 1 << 30,
            compile_time: outboard_simt::EngineConfig::COMPILE_TIME,
            most_queued: 1 << 10,
            divides: true,
            version: 13000,
            log: false,
        };
        let platform = platform(&config);
        assert_eq!(platform.devices.len(), 3);
        let device = &platform.devices[1];
        assert_eq!(device.name, "Outboard CPU (4 threads)");
        assert_eq!(
            device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT.0),
            Some(4)
        );
        assert_eq!(device.attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID.0), Some(2));
        assert!(device.attributes.is_sorted_by(|a, b| a.0 < b.0), "each attribute once, ascending");
        assert_ne!(device.uuid, platform.devices[0].uuid);
    }

    #[test]
    fn a_uuid_is_stable() {
        // Programs and schedulers keep it in their configuration.
        let made = uuid("0123456789abcdef", 0);
        assert_eq!(made, 0x3729_3cd7_c4a9_854b_89d9_8df3_6d93_8836_u128.to_be_bytes());
        assert_eq!(made[6] >> 4, 8);
        assert_eq!(made[8] >> 6, 2);
        assert_ne!(made, uuid("0123456789abcdef", 1));
    }
}
