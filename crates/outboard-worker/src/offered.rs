//! What the client may see: the devices that the session is offered, and NVML's answers about them.

use outboard_abi::nvml::nvmlReturn_t;
use outboard_abi::{CUdevice_attribute as A, CUresult};
use outboard_nvml::PciPlace;
use outboard_wire::device_id::DeviceId;
use outboard_wire::platform::{Device, Platform};
use outboard_wire::{DecodeError, Encode, Writer};

use super::management::Management;

/// The devices of a session, as large as it may have them.
pub(crate) struct Offered {
    platform: Platform,
    management: Management,
}

impl Offered {
    pub(crate) fn new(platform: Platform, management: Management) -> Offered {
        Offered { platform, management }
    }

    /// The platform, for the client.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        self.platform.encode(&mut writer);
        writer.into_vec()
    }

    /// The ordinals of the devices.
    pub(crate) fn ordinals(&self) -> impl Iterator<Item = u32> {
        self.platform.devices.iter().map(|device| device.id.ordinal())
    }

    /// Where the devices are on PCI buses, as the kernel calls these places.
    pub(crate) fn pci_devices(&self) -> impl Iterator<Item = String> {
        self.platform.devices.iter().filter_map(PciPlace::of).map(|place| place.to_string())
    }

    pub(crate) fn has_several(&self) -> bool {
        self.platform.devices.len() > 1
    }

    /// The driver's ordinal of a device that the client may use.
    pub(crate) fn ordinal(&self, id: DeviceId) -> Result<u32, CUresult> {
        let offered = self.platform.devices.iter().any(|device| device.id == id);
        offered.then_some(id.ordinal()).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// The device with this ordinal.
    pub(crate) fn device(&self, ordinal: u32) -> Option<&Device> {
        self.platform.devices.iter().find(|device| device.id.ordinal() == ordinal)
    }

    /// An attribute of the device with this ordinal; 0 if that is not known.
    pub(crate) fn attribute(&self, ordinal: u32, attribute: A) -> i32 {
        self.device(ordinal).and_then(|device| device.attribute(attribute.0)).unwrap_or(0)
    }

    /// The architecture of a device, such as 90.
    pub(crate) fn architecture(&self, ordinal: u32) -> u32 {
        let (major, minor) = (
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        );
        (self.attribute(ordinal, major) * 10 + self.attribute(ordinal, minor)) as u32
    }

    /// Answers a question to NVML; an error is a breach of the protocol.
    pub(crate) fn nvml(
        &self,
        function: &str,
        arguments: &[u8],
    ) -> Result<(nvmlReturn_t, Vec<u8>), DecodeError> {
        self.management.answer(&self.platform, function, arguments)
    }

    /// The processes on a device, with their bytes of its memory.
    pub(crate) fn processes(&self, device: u32) -> Vec<(u32, u64)> {
        self.management.processes(&self.platform, device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MemoryLimits;

    fn device(ordinal: u32, major: i32) -> Device {
        let minor = A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR.0;
        let attributes =
            vec![(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR.0, major), (minor, 6)];
        Device { id: DeviceId::new(ordinal), attributes, ..Device::default() }
    }

    #[test]
    fn only_the_devices_of_the_session_are_there() {
        // The server has more.
        let platform = Platform {
            driver_version: 13_000,
            driver_name: String::new(),
            devices: vec![device(3, 9), device(1, 8)],
            lacks: Vec::new(),
        };
        let offered = Offered::new(platform, Management::new("".into(), MemoryLimits::default()));
        assert_eq!(offered.ordinals().collect::<Vec<_>>(), [3, 1]);
        assert!(offered.has_several());
        assert_eq!(offered.ordinal(DeviceId::new(1)), Ok(1));
        assert_eq!(offered.pci_devices().count(), 0, "as far as is known");
        for other in [0, 2, 4] {
            assert_eq!(
                offered.ordinal(DeviceId::new(other)),
                Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
            );
            assert_eq!((offered.device(other), offered.architecture(other)), (None, 0));
        }
        assert_eq!((offered.architecture(3), offered.architecture(1)), (96, 86));
    }
}
