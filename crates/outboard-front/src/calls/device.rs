//! Devices.

mod notify;

use core::ffi::{c_char, c_int, c_uint};

use outboard_abi::{
    CUarray_format, CUatomicOperation, CUdevice, CUdevice_attribute, CUdevprop, CUexecAffinityType,
    CUflushGPUDirectRDMAWritesScope, CUflushGPUDirectRDMAWritesTarget, CUresult, CUuuid,
};
use outboard_wire::platform::Device;

use crate::backend::{Backend, Result};
use crate::border::{put, require, slice, text};
use crate::device::value;
use crate::process::Process;
use crate::state::{device, ready};

pub use notify::*;

pub unsafe fn cuDeviceGet<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdevice,
    ordinal: c_int,
) -> Result<()> {
    ready(process)?;
    require(!out.is_null())?;
    device(process, ordinal)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, ordinal) }
}

pub unsafe fn cuDeviceGetCount<B: Backend>(
    process: &'static Process<B>,
    count: *mut c_int,
) -> Result<()> {
    let state = ready(process)?;
    // SAFETY: the program's out parameter.
    unsafe { put(count, state.devices.len() as c_int) }
}

pub unsafe fn cuDeviceGetName<B: Backend>(
    process: &'static Process<B>,
    name: *mut c_char,
    len: c_int,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    // SAFETY: the program gives `len` bytes.
    unsafe { copy_text(&device.name, name, len)? };
    // The rest is zeros, as from the native driver: bindings hand all of it to programs.
    let end = device.name.len().min(len as usize - 1);
    // SAFETY: of the `len` bytes of the program, those behind the text; `copy_text` has checked
    // that there are any.
    unsafe { name.add(end).write_bytes(0, len as usize - end) };
    Ok(())
}

pub unsafe fn cuDeviceGetUuid<B: Backend>(
    process: &'static Process<B>,
    uuid: *mut CUuuid,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    // SAFETY: the program's out parameter.
    unsafe { put(uuid, CUuuid { bytes: device.uuid.map(|byte| byte as c_char) }) }
}

pub unsafe fn cuDeviceGetUuid_v2<B: Backend>(
    process: &'static Process<B>,
    uuid: *mut CUuuid,
    dev: CUdevice,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuDeviceGetUuid(process, uuid, dev) }
}

pub unsafe fn cuDeviceGetLuid<B: Backend>(
    process: &'static Process<B>,
    _luid: *mut c_char,
    _mask: *mut c_uint,
    dev: CUdevice,
) -> Result<()> {
    device(process, dev)?;
    // Locally unique ids are Windows'.
    Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

pub unsafe fn cuDeviceTotalMem<B: Backend>(
    process: &'static Process<B>,
    bytes: *mut c_uint,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    // SAFETY: the program's out parameter.
    unsafe { put(bytes, u32::try_from(device.total_memory).unwrap_or(u32::MAX)) }
}

pub unsafe fn cuDeviceTotalMem_v2<B: Backend>(
    process: &'static Process<B>,
    bytes: *mut usize,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    // SAFETY: the program's out parameter.
    unsafe { put(bytes, device.total_memory as usize) }
}

pub unsafe fn cuDeviceGetAttribute<B: Backend>(
    process: &'static Process<B>,
    value: *mut c_int,
    attribute: CUdevice_attribute,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    let mut found = device.attribute(attribute.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // Loaders such as fastsafetensors read it before they use cuFile.
    if attribute == CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED
        && process.files.maps()
    {
        found = 1;
    }
    // SAFETY: the program's out parameter.
    unsafe { put(value, found) }
}

pub unsafe fn cuDeviceComputeCapability<B: Backend>(
    process: &'static Process<B>,
    major: *mut c_int,
    minor: *mut c_int,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    // SAFETY: the program's out parameters.
    unsafe {
        put(
            major,
            value(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        )?;
        put(minor, value(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR))
    }
}

pub unsafe fn cuDeviceGetProperties<B: Backend>(
    process: &'static Process<B>,
    prop: *mut CUdevprop,
    dev: CUdevice,
) -> Result<()> {
    use CUdevice_attribute as A;
    let (_, device) = device(process, dev)?;
    let v = |attribute| value(device, attribute);
    let properties = CUdevprop {
        maxThreadsPerBlock: v(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
        maxThreadsDim: [
            v(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
            v(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
            v(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
        ],
        maxGridSize: [
            v(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
            v(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
            v(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
        ],
        sharedMemPerBlock: v(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
        totalConstantMemory: v(A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        SIMDWidth: v(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        memPitch: v(A::CU_DEVICE_ATTRIBUTE_MAX_PITCH),
        regsPerBlock: v(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK),
        clockRate: v(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        textureAlign: v(A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    // SAFETY: the program's out parameter.
    unsafe { put(prop, properties) }
}

pub unsafe fn cuDeviceGetPCIBusId<B: Backend>(
    process: &'static Process<B>,
    out: *mut c_char,
    len: c_int,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    let id = bus_id(device);
    // What fits is there all the same.
    // SAFETY: the program gives `len` bytes.
    unsafe { copy_text(&id, out, len) }?;
    require(id.len() < len as usize)
}

pub unsafe fn cuDeviceGetByPCIBusId<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUdevice,
    id: *const c_char,
) -> Result<()> {
    let state = ready(process)?;
    // SAFETY: the program's string.
    let wanted = parse_bus_id(unsafe { text(id) }?).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let index = state
        .devices
        .iter()
        .position(|device| pci(device) == wanted)
        .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, index as CUdevice) }
}

/// `CU_ATOMIC_OPERATION_MAX`.
const ATOMIC_OPERATIONS: u32 = 13;

pub unsafe fn cuDeviceGetHostAtomicCapabilities<B: Backend>(
    process: &'static Process<B>,
    capabilities: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
    dev: CUdevice,
) -> Result<()> {
    device(process, dev)?;
    require(!capabilities.is_null() && count != 0)?;
    // SAFETY: the program gives `count` elements of each.
    let operations = unsafe { slice(operations, count as usize) }?;
    require(operations.iter().all(|operation| operation.0 < ATOMIC_OPERATIONS))?;
    // No atomic operation of the device reaches the memory of this machine as one:
    // `HOST_NATIVE_ATOMIC_SUPPORTED` is 0.
    for index in 0..operations.len() {
        // SAFETY: as above.
        unsafe { put(capabilities.add(index), 0) }?;
    }
    Ok(())
}

pub unsafe fn cuDeviceGetTexture1DLinearMaxWidth<B: Backend>(
    process: &'static Process<B>,
    width: *mut usize,
    format: CUarray_format,
    channels: c_uint,
    dev: CUdevice,
) -> Result<()> {
    let (_, device) = device(process, dev)?;
    require(!width.is_null() && matches!(channels, 1 | 2 | 4))?;
    let found = process.backend.texture_1d_width(device.id, format.0, channels)?;
    // SAFETY: the program's out parameter.
    unsafe { put(width, found as usize) }
}

pub unsafe fn cuFlushGPUDirectRDMAWrites<B: Backend>(
    process: &'static Process<B>,
    _target: CUflushGPUDirectRDMAWritesTarget,
    _scope: CUflushGPUDirectRDMAWritesScope,
) -> Result<()> {
    let here = crate::context::current(process)?;
    let options = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS;
    // `CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST`.
    if value(here.device()?, options) & 1 == 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    // Nothing of this machine writes to the device but copies, which are in order.
    Ok(())
}

pub unsafe fn cuDeviceGetExecAffinitySupport<B: Backend>(
    process: &'static Process<B>,
    supported: *mut c_int,
    _kind: CUexecAffinityType,
    dev: CUdevice,
) -> Result<()> {
    device(process, dev)?;
    // SAFETY: the program's out parameter.
    unsafe { put(supported, 0) }
}

/// Domain, bus, device.
fn pci(device: &Device) -> [i32; 3] {
    use CUdevice_attribute as A;
    [
        A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    ]
    .map(|attribute| value(device, attribute))
}

fn bus_id(device: &Device) -> String {
    let [domain, bus, device] = pci(device);
    format!("{domain:04X}:{bus:02X}:{device:02X}.0")
}

/// `[domain]:[bus]:[device].[function]`, `[bus]:[device].[function]` or the like, in hexadecimal.
fn parse_bus_id(id: &str) -> Option<[i32; 3]> {
    let id = id.split_once('.').map_or(id, |(id, _)| id);
    let parts: Vec<i32> =
        id.split(':').map(|part| i32::from_str_radix(part, 16).ok()).collect::<Option<_>>()?;
    match parts[..] {
        [domain, bus, device] => Some([domain, bus, device]),
        [bus, device] => Some([0, bus, device]),
        _ => None,
    }
}

/// Copies as much of a text as fits, with its final zero.
///
/// # Safety
/// `out` is null or valid for `len` bytes.
unsafe fn copy_text(text: &str, out: *mut c_char, len: c_int) -> Result<()> {
    require(!out.is_null() && len > 0)?;
    let count = text.len().min(len as usize - 1);
    // SAFETY: not null, and at most `len` bytes are written.
    unsafe {
        core::ptr::copy_nonoverlapping(text.as_ptr(), out.cast(), count);
        out.add(count).write(0);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids() {
        assert_eq!(parse_bus_id("0000:1A:00.0"), Some([0, 0x1a, 0]));
        assert_eq!(parse_bus_id("1a:0"), Some([0, 0x1a, 0]));
        assert_eq!(parse_bus_id("nonsense"), None);
        let device = Device { attributes: vec![(33, 0x1a), (34, 3), (50, 1)], ..Device::default() };
        assert_eq!(bus_id(&device), "0001:1A:03.0");
        assert_eq!(parse_bus_id(&bus_id(&device)), Some(pci(&device)));
    }

    #[test]
    fn text_is_cut_to_the_buffer() {
        let mut buffer = [1 as c_char; 4];
        // SAFETY: the buffer has the length given.
        unsafe { copy_text("software", buffer.as_mut_ptr(), 4) }.unwrap();
        assert_eq!(buffer.map(|c| c as u8), *b"sof\0");
    }
}
