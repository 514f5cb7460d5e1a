//! Which devices there are, by position, UUID, address and serial number.

use std::ffi::{c_char, c_int, c_uint};

use outboard_abi::CUdevice_attribute as Attribute;
use outboard_abi::nvml::{
    NVML_DEVICE_UUID_ASCII_LEN, NVML_DEVICE_UUID_BINARY_LEN, nvmlDevice_t, nvmlGpuTopologyLevel_t,
    nvmlReturn_t, nvmlUUID_t, nvmlUUIDType_t,
};
use outboard_nvml::{PciPlace, find};
use outboard_wire::platform::{Device, uuid_text};

use crate::border::{INVALID, NOT_FOUND, Result, put, put_text, text};
use crate::machine::Machine;
use crate::query::Argument::{Number, Pointer};
use crate::query::ask;
use crate::{device, session};

pub(crate) unsafe fn nvmlDeviceGetCount(count: *mut c_uint) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: null or valid, by the contract.
    unsafe { put(count, machine.platform().devices.len() as c_uint) }
}

pub(crate) unsafe fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceGetCount(count) }
}

pub(crate) unsafe fn nvmlDeviceGetHandleByIndex(
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    if index as usize >= machine.platform().devices.len() {
        return Err(INVALID);
    }
    // SAFETY: null or valid, by the contract.
    unsafe { put(device, device::handle(index as usize)) }
}

pub(crate) unsafe fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceGetHandleByIndex(index, device) }
}

/// Stores the handle of the first device that is `wanted`.
///
/// # Safety
/// `device` is null or valid for a write.
unsafe fn first(
    machine: &Machine,
    device: *mut nvmlDevice_t,
    wanted: impl FnMut(&Device) -> bool,
) -> Result<()> {
    let index = machine.platform().devices.iter().position(wanted).ok_or(NOT_FOUND)?;
    // SAFETY: by the contract above.
    unsafe { put(device, device::handle(index)) }
}

/// Whether a text is that of the UUID, with what says so before it or without.
fn is_text_of(uuid: &[u8; 16], text: &[u8]) -> bool {
    let whole = uuid_text(uuid);
    let bare = whole.split_once('-').map_or("", |(_, bare)| bare);
    [whole.as_str(), bare].iter().any(|form| form.as_bytes().eq_ignore_ascii_case(text))
}

pub(crate) unsafe fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    device: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: null or a string, by the contract.
    let uuid = unsafe { text(uuid) }?;
    // SAFETY: null or valid, by the contract.
    unsafe { first(&machine, device, |known| is_text_of(&known.uuid, uuid.as_bytes())) }
}

pub(crate) unsafe fn nvmlDeviceGetHandleByUUIDV(
    uuid: *const nvmlUUID_t,
    device: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: null or valid, by the contract.
    let uuid = unsafe { uuid.as_ref() }.ok_or(INVALID)?;
    match nvmlUUIDType_t(uuid.type_) {
        nvmlUUIDType_t::NVML_UUID_TYPE_ASCII => {
            // SAFETY: the type says that it is text; any bytes are.
            let bytes: [u8; NVML_DEVICE_UUID_ASCII_LEN as usize] =
                unsafe { uuid.value.str_ }.map(|byte| byte as u8);
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            // SAFETY: null or valid, by the contract.
            unsafe { first(&machine, device, |known| is_text_of(&known.uuid, &bytes[..end])) }
        }
        nvmlUUIDType_t::NVML_UUID_TYPE_BINARY => {
            // SAFETY: the type says that it is binary; any bytes are.
            let bytes: [u8; NVML_DEVICE_UUID_BINARY_LEN as usize] = unsafe { uuid.value.bytes };
            // SAFETY: null or valid, by the contract.
            unsafe { first(&machine, device, |known| known.uuid == bytes) }
        }
        _ => Err(INVALID),
    }
}

pub(crate) unsafe fn nvmlDeviceGetHandleByPciBusId(
    address: *const c_char,
    device: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: null or a string, by the contract.
    let wanted = parse_address(unsafe { text(address) }?).ok_or(INVALID)?;
    // SAFETY: null or valid, by the contract.
    let found = unsafe { first(&machine, device, |known| PciPlace::of(known) == Some(wanted)) };
    // An address without a device is an argument that cannot be right.
    found.map_err(|error| if error == NOT_FOUND { INVALID } else { error })
}

pub(crate) unsafe fn nvmlDeviceGetHandleByPciBusId_v2(
    address: *const c_char,
    device: *mut nvmlDevice_t,
) -> Result<()> {
    // SAFETY: the same contract.
    unsafe { nvmlDeviceGetHandleByPciBusId(address, device) }
}

/// Domain, bus and device of a PCI address, `[domain:]bus:device[.function]` in hexadecimal.
pub(crate) fn parse_address(text: &str) -> Option<PciPlace> {
    let hexadecimal = |part: &str| {
        let digits = !part.is_empty()
            && part.len() <= 8
            && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        if digits { u32::from_str_radix(part, 16).ok() } else { None }
    };
    let (place, function) = text.split_once('.').unwrap_or((text, "0"));
    hexadecimal(function)?;
    let parts = place.split(':').map(hexadecimal).collect::<Option<Vec<_>>>()?;
    match parts[..] {
        [domain, bus, slot] => Some(PciPlace { domain, bus, slot }),
        [bus, slot] => Some(PciPlace { domain: 0, bus, slot }),
        _ => None,
    }
}

pub(crate) unsafe fn nvmlDeviceGetHandleBySerial(
    serial: *const c_char,
    device: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    // SAFETY: null or a string, by the contract.
    let wanted = unsafe { text(serial) }?;
    let function = find("nvmlDeviceGetSerial").ok_or(INVALID)?;
    for index in 0..machine.platform().devices.len() {
        let mut serial = [0_u8; 64];
        let arguments = [
            Pointer(device::handle(index).cast()),
            Pointer(serial.as_mut_ptr().cast()),
            Number(serial.len() as u64),
        ];
        // SAFETY: a device, and room for as many bytes as said.
        match unsafe { ask(&machine, function, &arguments) } {
            Ok(()) => {}
            Err(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED) => continue,
            Err(error) => return Err(error),
        }
        let end = serial.iter().position(|byte| *byte == 0).unwrap_or(serial.len());
        if serial[..end] == *wanted.as_bytes() {
            // SAFETY: null or valid, by the contract.
            return unsafe { put(device, device::handle(index)) };
        }
    }
    Err(NOT_FOUND)
}

pub(crate) unsafe fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) -> Result<()> {
    let machine = session::machine()?;
    let known = device::index(&machine, device)?;
    // SAFETY: null or valid, by the contract.
    unsafe { put(index, known) }
}

pub(crate) unsafe fn nvmlDeviceGetUUID(
    device: nvmlDevice_t,
    uuid: *mut c_char,
    length: c_uint,
) -> Result<()> {
    let machine = session::machine()?;
    let device = device::device(&machine, device)?;
    // SAFETY: null or as long as said, by the contract.
    unsafe { put_text(uuid, length, &uuid_text(&device.uuid)) }
}

pub(crate) unsafe fn nvmlDeviceGetCudaComputeCapability(
    device: nvmlDevice_t,
    major: *mut c_int,
    minor: *mut c_int,
) -> Result<()> {
    let machine = session::machine()?;
    let device = device::device(&machine, device)?;
    if major.is_null() || minor.is_null() {
        return Err(INVALID);
    }
    let part = |attribute: Attribute| device.attribute(attribute.0).unwrap_or(0);
    // SAFETY: valid, by the contract.
    unsafe {
        put(major, part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR))?;
        put(minor, part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
    }
}

/// The devices of the session at this distance from one of them: others of the server are not to be
/// seen.
pub(crate) unsafe fn nvmlDeviceGetTopologyNearestGpus(
    device: nvmlDevice_t,
    level: nvmlGpuTopologyLevel_t,
    count: *mut c_uint,
    devices: *mut nvmlDevice_t,
) -> Result<()> {
    let machine = session::machine()?;
    let index = device::index(&machine, device)? as usize;
    // SAFETY: null or valid, by the contract.
    let room = *unsafe { count.as_ref() }.ok_or(INVALID)? as usize;
    let ancestor = find("nvmlDeviceGetTopologyCommonAncestor").ok_or(INVALID)?;
    let mut near = Vec::new();
    for other in (0..machine.platform().devices.len()).filter(|other| *other != index) {
        let mut distance = nvmlGpuTopologyLevel_t(0);
        let arguments = [
            Pointer(device.cast()),
            Pointer(device::handle(other).cast()),
            Pointer((&raw mut distance).cast()),
        ];
        // SAFETY: two devices, and room for the answer.
        unsafe { ask(&machine, ancestor, &arguments) }?;
        if distance == level {
            near.push(device::handle(other));
        }
    }
    // SAFETY: valid, by the contract.
    unsafe { count.write(near.len() as c_uint) };
    if devices.is_null() {
        return if room == 0 { Ok(()) } else { Err(INVALID) };
    }
    if room < near.len() {
        return Err(nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE);
    }
    // SAFETY: there is room for that many, by the contract.
    unsafe { core::ptr::copy_nonoverlapping(near.as_ptr(), devices, near.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_may_come_without_what_says_so() {
        let uuid: [u8; 16] = std::array::from_fn(|index| 0xa0 + index as u8);
        let bare = "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf";
        for text in [bare, &format!("GPU-{bare}"), &format!("gpu-{}", bare.to_uppercase())] {
            assert!(is_text_of(&uuid, text.as_bytes()), "{text}");
        }
        for text in ["", "GPU-", "GPU-a0a1a2a3", &bare[1..]] {
            assert!(!is_text_of(&uuid, text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn addresses_are_read_in_all_their_forms() {
        let place = |domain, bus, slot| PciPlace { domain, bus, slot };
        for text in ["00000000:1B:00.0", "0000:1b:00.0", "1b:00.0", "1B:0", "0:1b:0.0"] {
            assert_eq!(parse_address(text), Some(place(0, 0x1b, 0)), "{text}");
        }
        assert_eq!(parse_address("00000001:02:03.0"), Some(place(1, 2, 3)));
        for text in ["", "1b", "x:1b:0", "1:2:3:4", "0000:1b:00.", "+1:2:3", "000000001:1b:00"] {
            assert_eq!(parse_address(text), None, "{text}");
        }
    }
}
