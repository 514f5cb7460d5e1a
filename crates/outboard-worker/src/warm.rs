//! Primary contexts made before there is a client.
//!
//! The client learns nothing of them: what it asks about primary contexts, its own driver library
//! answers. Whether one was there already shows in the time that its first use takes, and in
//! nothing else.

use outboard_abi::nvml::{nvmlDevice_t, nvmlMemory_t, nvmlReturn_t};
use outboard_abi::{CUcontext, CUdeviceptr, CUfunction, CUmodule, CUresult, CUstream};
use outboard_driver::nvml::Nvml;
use outboard_driver::{Table, call};
use outboard_wire::platform::{Device, Platform, uuid_text};

use super::io;
use super::kept::Kept;
use super::prepared::Setup;

/// A kernel that does nothing, for devices of any age.
const KERNEL: &std::ffi::CStr =
    c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() {\n    ret;\n}\n";

/// The bytes of devices that are in use, by NVML: it can be asked before there is a context.
pub(super) struct Measures {
    nvml: Nvml,
    devices: Vec<(i32, nvmlDevice_t)>,
}

impl Measures {
    /// None where there is no NVML for this driver.
    pub(super) fn new(setup: &Setup, platform: &Platform) -> Option<Measures> {
        // SAFETY: a file of that name is an NVML library; the server's administrator chose the
        // named one as a driver library.
        let nvml = unsafe { Nvml::load(setup.nvml.as_deref(), &setup.driver) }?;
        let handle = |device: &Device| {
            Some((device.id.ordinal() as i32, nvml.device(&uuid_text(&device.uuid))?))
        };
        let devices = platform.devices.iter().filter_map(handle).collect();
        Some(Measures { nvml, devices })
    }

    pub(super) fn used(&self, device: i32) -> Option<u64> {
        let (_, handle) = self.devices.iter().find(|(ordinal, _)| *ordinal == device)?;
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        let arguments =
            [handle.expose_provenance() as u64, (&raw mut memory).expose_provenance() as u64];
        // SAFETY: a device, and room for what is said of its memory.
        let status = unsafe { self.nvml.call("nvmlDeviceGetMemoryInfo", &arguments) };
        (status == Some(nvmlReturn_t::NVML_SUCCESS)).then_some(memory.used)
    }
}

/// The contexts made ahead.
#[derive(Default)]
pub(super) struct Made {
    pub(super) kept: Kept,
    /// What the contexts take.
    pub(super) told: Vec<io::ContextMemory>,
    /// Addresses of memory that was allocated in them.
    pub(super) memory: Vec<CUdeviceptr>,
}

/// Measurements of a context.
struct Seen {
    free: u64,
    total: u64,
    memory: CUdeviceptr,
}

/// Retains the primary contexts of these devices, and does once in each what is slow the first
/// time. After an error, the client's first use makes the context and reports the reason. The
/// result also says how much memory they take; `used` says how many bytes of a device are in use,
/// if it can.
pub(super) fn contexts(table: &Table, devices: &[i32], used: impl Fn(i32) -> Option<u64>) -> Made {
    let mut made = Made::default();
    for device in devices {
        let before = used(*device);
        let mut context: CUcontext = core::ptr::null_mut();
        if let Err(error) = call!(table, cuDevicePrimaryCtxRetain(&raw mut context, *device)) {
            tracing::warn!(device, error = error.0, "no context could be made ahead");
            continue;
        }
        made.kept.add(*device, context);
        match use_once(table, context) {
            Ok(Seen { free, total, memory }) => {
                let size =
                    before.zip(used(*device)).map(|(before, after)| after.saturating_sub(before));
                made.told.push(io::ContextMemory { ordinal: *device as u32, free, total, size });
                made.memory.push(memory);
            }
            Err(error) => {
                tracing::warn!(device, error = error.0, "a context made ahead could not be tried")
            }
        }
    }
    made
}

/// Does in a context what is slow the first time: loading code, launching, a stream's first
/// operations, memory. Then how many bytes of the device are free, how many there are, and where
/// the memory was.
fn use_once(table: &Table, context: CUcontext) -> Result<Seen, CUresult> {
    call!(table, cuCtxPushCurrent_v2(context))?;
    let (mut free, mut total) = (0, 0);
    let outcome = load_and_launch(table)
        .and_then(|()| copy_and_fill(table))
        .and_then(|memory| {
            call!(table, cuMemGetInfo_v2(&raw mut free, &raw mut total)).map(|()| memory)
        })
        .map(|memory| Seen { free: free as u64, total: total as u64, memory });
    let mut popped = core::ptr::null_mut();
    call!(table, cuCtxPopCurrent_v2(&raw mut popped))?;
    outcome
}

fn load_and_launch(table: &Table) -> Result<(), CUresult> {
    let (mut module, mut function): (CUmodule, CUfunction) =
        (core::ptr::null_mut(), core::ptr::null_mut());
    let none = core::ptr::null_mut();
    call!(table, cuModuleLoadData(&raw mut module, KERNEL.as_ptr().cast()))?;
    call!(table, cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()))?;
    call!(
        table,
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, core::ptr::null_mut(), none, none.cast())
    )?;
    call!(table, cuCtxSynchronize())?;
    call!(table, cuModuleUnload(module))
}

fn copy_and_fill(table: &Table) -> Result<CUdeviceptr, CUresult> {
    const BYTES: usize = 4096;
    let mut stream: CUstream = core::ptr::null_mut();
    let mut memory: CUdeviceptr = 0;
    let mut host = [0u8; BYTES];
    call!(table, cuStreamCreate(&raw mut stream, 1))?;
    call!(table, cuMemAlloc_v2(&raw mut memory, BYTES))?;
    let at = host.as_mut_ptr().cast();
    let outcome = call!(table, cuMemsetD8Async(memory, 1, BYTES, stream))
        .and_then(|()| call!(table, cuMemcpyHtoDAsync_v2(memory, at, BYTES, stream)))
        .and_then(|()| call!(table, cuMemcpyDtoHAsync_v2(at, memory, BYTES, stream)));
    // A device need not have these; then nobody uses them.
    let _ = call!(table, cuStreamWriteValue32_v2(stream, memory, 1, 0))
        .and_then(|()| call!(table, cuStreamWaitValue32_v2(stream, memory, 1, 0)));
    call!(table, cuStreamSynchronize(stream))?;
    call!(table, cuMemFree_v2(memory))?;
    call!(table, cuStreamDestroy_v2(stream))?;
    outcome.map(|()| memory)
}
