//! Answers for devices that no NVML library knows, from their driver library.

use std::mem::offset_of;
use std::sync::{Mutex, PoisonError};

use outboard_abi::CUdevice_attribute as Attribute;
use outboard_abi::nvml::*;
use outboard_nvml::{Argument, PciPlace};
use outboard_wire::platform::{Device, Platform};

use crate::block::Block;
use crate::load::Load;
use crate::question::Question;

const OK: nvmlReturn_t = nvmlReturn_t::NVML_SUCCESS;

/// How the devices are used.
pub trait Use {
    /// The processes of this machine whose processor time is that of the devices.
    fn processes(&self) -> Vec<u32>;

    /// Bytes in use of the memory of the device with this ordinal.
    fn memory(&self, ordinal: u32) -> u64;
}

/// Answers from a description of the devices. What it keeps between questions is how busy they
/// were, which is measured between two of them.
pub struct Described<U> {
    usage: U,
    load: Mutex<Option<Load>>,
}

/// One question to answer.
struct Asked<'a> {
    platform: &'a Platform,
    usage: &'a dyn Use,
    arguments: &'a [Argument<'a>],
    blocks: &'a mut [Block],
}

impl<U: Use> Described<U> {
    /// For devices that are used so.
    pub fn new(usage: U) -> Described<U> {
        Described { usage, load: Mutex::new(None) }
    }

    /// Answers those functions whose description says so (`driver = true`).
    pub fn answer(&self, platform: &Platform, question: &mut Question<'_>) -> nvmlReturn_t {
        let Question { function, arguments, blocks } = question;
        if !function.driver {
            return nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED;
        }
        if arguments.contains(&Argument::Null) {
            // None of these functions lets an output be left out.
            return nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT;
        }
        let mut asked = Asked { platform, usage: &self.usage, arguments, blocks };
        let outcome = if function.name.starts_with("nvmlSystem") {
            asked.of_the_system(function.name)
        } else if function.name == "nvmlDeviceGetUtilizationRates" {
            let processes = || self.usage.processes();
            let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
            let busy = load.get_or_insert_with(|| Load::begin(&processes())).percent(processes);
            asked.put(1, &nvmlUtilization_t { gpu: busy, memory: 0 })
        } else {
            asked.of_a_device(function.name)
        };
        outcome.unwrap_or(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED)
    }
}

impl Asked<'_> {
    fn put<T: Copy>(&mut self, index: usize, value: &T) -> Option<nvmlReturn_t> {
        self.blocks[index].put(value);
        Some(OK)
    }

    fn put_text(&mut self, index: usize, text: &str) -> Option<nvmlReturn_t> {
        let fits = self.blocks[index].put_text(text);
        Some(if fits { OK } else { nvmlReturn_t::NVML_ERROR_INSUFFICIENT_SIZE })
    }

    fn number(&self, index: usize) -> u32 {
        match self.arguments[index] {
            Argument::Number(number) => number as u32,
            _ => 0,
        }
    }

    fn device(&self, index: usize) -> Option<&Device> {
        match self.arguments[index] {
            Argument::Device(device) => self.platform.devices.get(device as usize),
            _ => None,
        }
    }

    fn of_the_system(&mut self, function: &str) -> Option<nvmlReturn_t> {
        // The first driver with this CUDA: 580 has 13.0, and so on backwards by programs'
        // reckoning.
        let (driver, api) = ("580.0", NVML_API_VERSION);
        match function {
            "nvmlSystemGetDriverVersion" => self.put_text(0, driver),
            "nvmlSystemGetNVMLVersion" => self.put_text(0, &format!("{api}.{driver}")),
            _ => None,
        }
    }

    fn of_a_device(&mut self, function: &str) -> Option<nvmlReturn_t> {
        let device = self.device(0)?.clone();
        let attribute = |attribute: Attribute| device.attribute(attribute.0);
        match function {
            "nvmlDeviceGetName" => self.put_text(1, &device.name),
            "nvmlDeviceGetBrand" => self.put(1, &nvmlBrandType_t::NVML_BRAND_UNKNOWN),
            "nvmlDeviceGetPciInfo" | "nvmlDeviceGetPciInfo_v2" | "nvmlDeviceGetPciInfo_v3" => {
                self.put(1, &pci(&device)?)
            }
            "nvmlDeviceGetPciInfoExt" => self.pci_ext(&device),
            "nvmlDeviceGetMemoryInfo" => {
                let used = self.used(&device);
                self.put(
                    1,
                    &nvmlMemory_t {
                        total: device.total_memory,
                        free: device.total_memory - used,
                        used,
                    },
                )
            }
            "nvmlDeviceGetMemoryInfo_v2" => {
                let Some(version) = self.version(1, size_of::<nvmlMemory_v2_t>(), 2) else {
                    return Some(nvmlReturn_t::NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
                };
                let used = self.used(&device);
                let (total, free) = (device.total_memory, device.total_memory - used);
                self.put(1, &nvmlMemory_v2_t { version, total, reserved: 0, free, used })
            }
            "nvmlDeviceGetFieldValues" => {
                // The call succeeds, and each value has a status.
                let values = self.blocks[2].bytes_mut();
                for value in values.chunks_exact_mut(size_of::<nvmlFieldValue_t>()) {
                    let status = &mut value[offset_of!(nvmlFieldValue_t, nvmlReturn)..][..4];
                    let unsupported = nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED;
                    status.copy_from_slice(&unsupported.0.to_le_bytes());
                }
                Some(OK)
            }
            "nvmlDeviceGetMinorNumber" => self.put(1, &device.id.ordinal()),
            "nvmlDeviceGetBoardId" => {
                let bus = attribute(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)? as u32;
                self.put(1, &(bus << 8))
            }
            "nvmlDeviceGetMultiGpuBoard" | "nvmlDeviceGetMaxMigDeviceCount" => self.put(1, &0_u32),
            "nvmlDeviceGetPersistenceMode" => self.put(1, &nvmlEnableState_t::NVML_FEATURE_ENABLED),
            "nvmlDeviceGetDisplayMode" | "nvmlDeviceGetDisplayActive" => {
                self.put(1, &nvmlEnableState_t::NVML_FEATURE_DISABLED)
            }
            "nvmlDeviceGetVirtualizationMode" => {
                self.put(1, &nvmlGpuVirtualizationMode_t::NVML_GPU_VIRTUALIZATION_MODE_NONE)
            }
            "nvmlDeviceGetPerformanceState" | "nvmlDeviceGetPowerState" => {
                self.put(1, &nvmlPstates_t::NVML_PSTATE_0)
            }
            "nvmlDeviceGetComputeMode" => {
                let mode = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE).unwrap_or(0);
                self.put(1, &mode)
            }
            "nvmlDeviceGetEccMode" => {
                let enabled = attribute(Attribute::CU_DEVICE_ATTRIBUTE_ECC_ENABLED)?;
                self.put(1, &enabled)?;
                self.put(2, &enabled)
            }
            "nvmlDeviceGetMemoryBusWidth" => {
                let width = attribute(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?;
                self.put(1, &width)
            }
            "nvmlDeviceGetMaxClockInfo" => {
                let kilohertz = match nvmlClockType_t(self.number(1)) {
                    nvmlClockType_t::NVML_CLOCK_GRAPHICS | nvmlClockType_t::NVML_CLOCK_SM => {
                        attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?
                    }
                    nvmlClockType_t::NVML_CLOCK_MEM => {
                        attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?
                    }
                    _ => return None,
                };
                self.put(2, &(kilohertz / 1000))
            }
            "nvmlDeviceGetArchitecture" => {
                let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
                let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
                self.put(1, &architecture(major, minor))
            }
            "nvmlDeviceGetTopologyCommonAncestor" => {
                let same = self.arguments[0] == self.arguments[1];
                let level = if same {
                    nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_INTERNAL
                } else {
                    nvmlGpuTopologyLevel_t::NVML_TOPOLOGY_SYSTEM
                };
                self.put(2, &level)
            }
            "nvmlDeviceGetP2PStatus" => {
                let reached = self.device(1).is_some_and(|other| device.peers.contains(&other.id));
                let status = if reached {
                    nvmlGpuP2PStatus_t::NVML_P2P_STATUS_OK
                } else {
                    nvmlGpuP2PStatus_t::NVML_P2P_STATUS_NOT_SUPPORTED
                };
                self.put(3, &status)
            }
            _ => None,
        }
    }

    fn used(&self, device: &Device) -> u64 {
        self.usage.memory(device.id.ordinal()).min(device.total_memory)
    }

    /// The version field of a structure, if it is the one known here.
    fn version(&self, index: usize, size: usize, number: u32) -> Option<u32> {
        let given =
            self.blocks[index].bytes().first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        (given == size as u32 | number << 24).then_some(given)
    }

    fn pci_ext(&mut self, device: &Device) -> Option<nvmlReturn_t> {
        let Some(version) = self.version(1, size_of::<nvmlPciInfoExt_t>(), 1) else {
            return Some(nvmlReturn_t::NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
        };
        let known = pci(device)?;
        self.put(
            1,
            &nvmlPciInfoExt_t {
                version,
                domain: known.domain,
                bus: known.bus,
                device: known.device,
                pciDeviceId: known.pciDeviceId,
                pciSubSystemId: known.pciSubSystemId,
                baseClass: DISPLAY_CONTROLLER,
                subClass: CONTROLLER_3D,
                busId: known.busId,
            },
        )
    }
}

/// Classes of PCI devices: what compute GPUs call themselves.
const DISPLAY_CONTROLLER: u32 = 3;
const CONTROLLER_3D: u32 = 2;

fn pci(device: &Device) -> Option<nvmlPciInfo_t> {
    let part = |attribute: Attribute| device.attribute(attribute.0).map(|value| value as u32);
    let PciPlace { domain, bus, slot } = PciPlace::of(device)?;
    Some(nvmlPciInfo_t {
        busIdLegacy: characters(&format!("{:04X}:{bus:02X}:{slot:02X}.0", domain & 0xffff)),
        domain,
        bus,
        device: slot,
        pciDeviceId: part(Attribute::CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID).unwrap_or(0),
        pciSubSystemId: part(Attribute::CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID).unwrap_or(0),
        busId: characters(&format!("{domain:08X}:{bus:02X}:{slot:02X}.0")),
    })
}

/// C's characters, with at least one zero at the end.
fn characters<const N: usize>(text: &str) -> [core::ffi::c_char; N] {
    let mut out = [0; N];
    for (to, from) in out[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from as core::ffi::c_char;
    }
    out
}

/// `nvmlDeviceArchitecture_t` of a compute capability.
fn architecture(major: i32, minor: i32) -> u32 {
    match (major, minor) {
        (3, _) => NVML_DEVICE_ARCH_KEPLER,
        (5, _) => NVML_DEVICE_ARCH_MAXWELL,
        (6, _) => NVML_DEVICE_ARCH_PASCAL,
        (7, 5) => NVML_DEVICE_ARCH_TURING,
        (7, _) => NVML_DEVICE_ARCH_VOLTA,
        (8, 9) => NVML_DEVICE_ARCH_ADA,
        (8, _) => NVML_DEVICE_ARCH_AMPERE,
        (9, _) => NVML_DEVICE_ARCH_HOPPER,
        (10.., _) => NVML_DEVICE_ARCH_BLACKWELL,
        _ => NVML_DEVICE_ARCH_UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_nvml::{FUNCTIONS, Param};

    fn platform() -> Platform {
        let attributes = [
            (Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 2_000_000),
            (Attribute::CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 0),
            (Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0x1b),
            (Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0),
            (Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1_000_000),
            (Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 128),
            (Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
            (Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0),
        ];
        let mut attributes: Vec<(u32, i32)> =
            attributes.iter().map(|(name, value)| (name.0, *value)).collect();
        attributes.sort_unstable();
        let device = Device {
            name: "a device".into(),
            total_memory: 1 << 30,
            attributes,
            ..Device::default()
        };
        Platform { devices: vec![device], ..Platform::default() }
    }

    /// Devices of which so many bytes are used, and which keep nothing busy.
    struct Used(u64);

    impl Use for Used {
        fn processes(&self) -> Vec<u32> {
            Vec::new()
        }

        fn memory(&self, _ordinal: u32) -> u64 {
            self.0
        }
    }

    fn ask(name: &str) -> (nvmlReturn_t, Vec<Block>) {
        ask_of(name, 0)
    }

    fn ask_of(name: &str, used: u64) -> (nvmlReturn_t, Vec<Block>) {
        let function = outboard_nvml::find(name).unwrap();
        let given = [0x28, 0, 0, 2];
        let given_ext = (size_of::<nvmlPciInfoExt_t>() as u32 | 1 << 24).to_le_bytes();
        let arguments: Vec<Argument<'_>> = function
            .params
            .iter()
            .map(|param| match *param {
                Param::Device => Argument::Device(0),
                Param::Number => Argument::Number(0),
                Param::Versioned { size } if name == "nvmlDeviceGetPciInfoExt" => {
                    Argument::Memory { room: size, given: &given_ext }
                }
                Param::Versioned { size } => Argument::Memory { room: size, given: &given },
                Param::Out { size } => Argument::Memory { room: size, given: &[] },
                _ => Argument::Memory { room: 100, given: &[] },
            })
            .collect();
        let mut blocks: Vec<Block> = arguments.iter().map(Block::of).collect();
        let mut asked = Asked {
            platform: &platform(),
            usage: &Used(used),
            arguments: &arguments,
            blocks: &mut blocks,
        };
        let outcome = match name {
            "nvmlDeviceGetUtilizationRates" => Some(OK),
            _ if name.starts_with("nvmlSystem") => asked.of_the_system(name),
            _ => asked.of_a_device(name),
        };
        (outcome.unwrap_or(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED), blocks)
    }

    #[test]
    fn the_descriptions_say_what_is_answered() {
        for function in &FUNCTIONS {
            let answered = ask(function.name).0 == OK;
            assert_eq!(
                answered, function.driver,
                "{}: api/nvml/ says `driver = {}`",
                function.name, function.driver
            );
        }
    }

    #[test]
    fn answers_are_what_the_driver_says() {
        assert!(ask("nvmlDeviceGetName").1[1].bytes().starts_with(b"a device\0"));
        let pci = &ask("nvmlDeviceGetPciInfo_v3").1[1];
        assert!(
            pci.bytes().starts_with(b"0000:1B:00.0\0")
                && pci.bytes()[36..].starts_with(b"00000000:1B:00.0\0")
        );
        let memory = &ask("nvmlDeviceGetMemoryInfo").1[1];
        assert_eq!(memory.bytes()[..8], (1_u64 << 30).to_le_bytes());
        assert_eq!(
            ask("nvmlDeviceGetArchitecture").1[1].bytes(),
            NVML_DEVICE_ARCH_HOPPER.to_le_bytes()
        );
        assert_eq!(ask("nvmlDeviceGetMaxClockInfo").1[2].bytes(), 2000_u32.to_le_bytes());
    }

    #[test]
    fn a_device_has_no_more_memory_in_use_than_it_has() {
        let used =
            |used| ask_of("nvmlDeviceGetMemoryInfo", used).1[1].get::<nvmlMemory_t>().unwrap();
        assert_eq!((used(5).free, used(5).used), ((1 << 30) - 5, 5));
        assert_eq!((used(u64::MAX).free, used(u64::MAX).used), (0, 1 << 30));
    }

    #[test]
    fn an_output_that_is_left_out_is_a_mistake() {
        let function = outboard_nvml::find("nvmlDeviceGetMemoryInfo").unwrap();
        let arguments = vec![Argument::Device(0), Argument::Null];
        let blocks = arguments.iter().map(Block::of).collect();
        let mut question = Question { function, arguments, blocks };
        let status = Described::new(Used(0)).answer(&platform(), &mut question);
        assert_eq!(status, nvmlReturn_t::NVML_ERROR_INVALID_ARGUMENT);
    }
}
