//! The server's own NVML.

use std::ffi::c_uint;
use std::path::Path;

use outboard_abi::nvml::{nvmlDevice_t, nvmlProcessInfo_t, nvmlReturn_t};
use outboard_driver::nvml::Nvml;
use outboard_nvml::Argument;
use outboard_nvml_answers::Question;
use outboard_wire::platform::{Platform, uuid_text};

/// Processes that one device lists at most.
const PROCESSES: usize = 4096;

/// The loaded library, and its handles of the session's devices.
pub(super) struct Native {
    nvml: Nvml,
    devices: Vec<nvmlDevice_t>,
}

impl Native {
    /// Loads the library; `None` if there is none, or none that knows the session's devices.
    pub(super) fn load(path: Option<&Path>, driver: &Path, platform: &Platform) -> Option<Native> {
        // SAFETY: a file of that name is an NVML library; whoever runs the server says so of one
        // that is named.
        let nvml = unsafe { Nvml::load(path, driver) };
        let Some(nvml) = nvml else {
            tracing::debug!("there is no NVML library; the driver library answers its questions");
            return None;
        };
        let handles = platform.devices.iter().map(|device| nvml.device(&uuid_text(&device.uuid)));
        let devices: Option<Vec<nvmlDevice_t>> = handles.collect();
        if devices.is_none() {
            tracing::debug!("the NVML library does not know the driver library's devices");
        }
        Some(Native { nvml, devices: devices? })
    }

    /// Calls a function with memory of this process.
    pub(super) fn call(&self, question: &mut Question<'_>) -> nvmlReturn_t {
        let Question { function, arguments, blocks } = question;
        let words: Vec<u64> = arguments
            .iter()
            .zip(blocks)
            .map(|(argument, block)| match argument {
                Argument::Device(index) => self.devices[*index as usize].expose_provenance() as u64,
                Argument::Number(number) => *number,
                Argument::Text(text) => text.as_ptr().expose_provenance() as u64,
                Argument::Null => 0,
                Argument::Memory { .. } => block.address(),
            })
            .collect();
        // SAFETY: the function asks and changes nothing, and its description says what its
        // parameters are and how much memory each needs.
        let status = unsafe { self.nvml.call(function.name, &words) };
        status.unwrap_or(nvmlReturn_t::NVML_ERROR_FUNCTION_NOT_FOUND)
    }

    /// All processes with a compute context on a device, of whatever client, as this machine
    /// numbers them.
    pub(super) fn processes(&self, device: u32) -> Vec<(u32, u64)> {
        let none =
            nvmlProcessInfo_t { pid: 0, usedGpuMemory: 0, gpuInstanceId: 0, computeInstanceId: 0 };
        let mut found = vec![none; PROCESSES];
        let mut count = PROCESSES as c_uint;
        let arguments = [
            self.devices[device as usize].expose_provenance() as u64,
            (&raw mut count).expose_provenance() as u64,
            found.as_mut_ptr().expose_provenance() as u64,
        ];
        // SAFETY: a device, and room for as many processes as said.
        let status =
            unsafe { self.nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", &arguments) };
        if status != Some(nvmlReturn_t::NVML_SUCCESS) {
            return Vec::new();
        }
        found[..(count as usize).min(PROCESSES)]
            .iter()
            .map(|process| (process.pid, process.usedGpuMemory))
            .collect()
    }
}
