//! Devices: everything is answered from the snapshot taken at `cuInit`.

pub(crate) mod notify;

use outboard_abi::CUdevice_attribute;
use outboard_wire::platform::Device;

pub(crate) use notify::Notifications;

/// An attribute that every device has; 0 where a driver leaves it out.
pub(crate) fn value(device: &Device, attribute: CUdevice_attribute) -> i32 {
    device.attribute(attribute.0).unwrap_or(0)
}
