//! Handles of devices: names that are never followed.

use outboard_abi::nvml::nvmlDevice_t;
use outboard_wire::platform::Device;

use crate::border::{INVALID, Result};
use crate::machine::{DevicePosition, Machine};

/// Handles are this and the device's position in the session: no address of anything, and not null.
const BASE: usize = 0x0b0a_4d00_0000;

/// The handle of the device at this position.
pub(crate) fn handle(index: usize) -> nvmlDevice_t {
    core::ptr::without_provenance_mut(BASE + index)
}

/// The position that a handle names.
pub(crate) fn index(machine: &Machine, device: nvmlDevice_t) -> Result<u32> {
    let index = device.addr().wrapping_sub(BASE);
    if index < machine.platform().devices.len() { Ok(index as u32) } else { Err(INVALID) }
}

/// The device that a handle names.
pub(crate) fn device(machine: &Machine, device: nvmlDevice_t) -> Result<&Device> {
    index(machine, device).map(|index| &machine.platform().devices[index as usize])
}

/// The connection that has the device of a handle, and its position there.
pub(crate) fn place(machine: &Machine, device: nvmlDevice_t) -> Result<DevicePosition> {
    machine.place(index(machine, device)?).ok_or(INVALID)
}
