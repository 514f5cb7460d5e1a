//! Devices: everything is answered from the snapshot taken at `cuInit`.

pub(crate) mod notify;

use outboard_abi::CUdevice_attribute as A;
use outboard_wire::platform::Device;

pub(crate) use notify::Notifications;

/// An attribute that every device has; 0 where a driver leaves it out.
pub(crate) fn value(device: &Device, attribute: A) -> i32 {
    device.attribute(attribute.0).unwrap_or(0)
}

/// Most bytes of shared memory that a block can have.
pub(crate) fn shared_limit(device: &Device) -> i32 {
    value(device, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        .max(value(device, A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK))
}

/// What launches on a device need to know of it, kept for fast access.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Whether the program sees devices of other servers, too.
    pub(crate) beside_others: bool,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) threads: i32,
    pub(crate) registers: i32,
}

impl Limits {
    /// Of one of the devices that the program sees.
    pub(crate) fn of(device: &Device, all: &[Device]) -> Limits {
        let positive = |attribute| u32::try_from(value(device, attribute)).unwrap_or(0);
        let server = device.id.server();
        Limits {
            beside_others: all.iter().any(|other| other.id.server() != server),
            grid: [
                A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ]
            .map(positive),
            block: [
                A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ]
            .map(positive),
            threads: value(device, A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            registers: value(device, A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        }
    }
}
