//! Describing the devices of a driver library.

use core::ffi::{c_char, c_int};
use std::ffi::CStr;

use outboard_abi::{CUdevice, CUdevice_attribute_enum, CUresult, CUuuid};
use outboard_wire::device_id::DeviceId;
use outboard_wire::platform::{Device, Platform};

use crate::{LoadError, Table, call};

/// Attributes are numbered from 1, with gaps, up to about 140 in CUDA 13.
const ATTRIBUTES: std::ops::Range<u32> = 1..200;
/// What devices of today offer: priorities 0 (least) to -5 (greatest).
const PRIORITIES: (i32, i32) = (0, -5);

/// Initialises the library and describes its devices. `name` is what to call the library.
///
/// # Errors
/// [`LoadError::Call`] with the first function of the library that failed.
pub fn platform(table: &Table, name: &str) -> Result<Platform, LoadError> {
    let done = |function, outcome: Result<(), CUresult>| {
        outcome.map_err(|error| LoadError::Call { function, error })
    };
    done("cuInit", call!(table, cuInit(0)))?;
    let (mut version, mut count): (c_int, c_int) = (0, 0);
    done("cuDriverGetVersion", call!(table, cuDriverGetVersion(&raw mut version)))?;
    done("cuDeviceGetCount", call!(table, cuDeviceGetCount(&raw mut count)))?;
    let devices =
        (0..count).map(|ordinal| device(table, ordinal, count)).collect::<Result<_, _>>()?;
    let lacks = table.lacks().map(str::to_owned).collect();
    Ok(Platform { driver_version: version as u32, driver_name: name.to_owned(), devices, lacks })
}

fn device(table: &Table, ordinal: CUdevice, count: c_int) -> Result<Device, LoadError> {
    let done = |function, outcome: Result<(), CUresult>| {
        outcome.map_err(|error| LoadError::Call { function, error })
    };
    let mut name = [0 as c_char; 256];
    done(
        "cuDeviceGetName",
        call!(table, cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int - 1, ordinal)),
    )?;
    // SAFETY: the last byte is still zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut uuid = CUuuid { bytes: [0; 16] };
    done("cuDeviceGetUuid", call!(table, cuDeviceGetUuid(&raw mut uuid, ordinal)))?;
    let mut total = 0usize;
    done("cuDeviceTotalMem_v2", call!(table, cuDeviceTotalMem_v2(&raw mut total, ordinal)))?;
    let mut attributes = Vec::new();
    for attribute in ATTRIBUTES {
        let mut value: c_int = 0;
        let asked = CUdevice_attribute_enum(attribute);
        if call!(table, cuDeviceGetAttribute(&raw mut value, asked, ordinal)).is_ok() {
            attributes.push((attribute, value));
        }
    }
    let reaches = |other: c_int| {
        let mut can: c_int = 0;
        other != ordinal
            && call!(table, cuDeviceCanAccessPeer(&raw mut can, ordinal, other)).is_ok()
            && can != 0
    };
    let prioritised = attributes.iter().any(|(attribute, value)| {
        *attribute == CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED.0
            && *value != 0
    });
    Ok(Device {
        id: DeviceId::new(ordinal as u32),
        name,
        uuid: uuid.bytes.map(|byte| byte as u8),
        total_memory: total as u64,
        attributes,
        stream_priorities: if prioritised { PRIORITIES } else { (0, 0) },
        peers: (0..count)
            .filter(|other| reaches(*other))
            .map(|other| DeviceId::new(other as u32))
            .collect(),
    })
}
