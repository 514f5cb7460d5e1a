//! Places on PCI buses.

use std::fmt;

use outboard_abi::CUdevice_attribute as A;
use outboard_wire::platform::Device;

/// Where the driver library says that a device is. It shows as the kernel calls the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciPlace {
    /// Which of the machine's trees of buses.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// What the driver library calls the device: its place on the bus.
    pub slot: u32,
}

impl PciPlace {
    /// The place of a device, if its driver library tells one.
    pub fn of(device: &Device) -> Option<PciPlace> {
        let part = |attribute: A| device.attribute(attribute.0).map(|value| value as u32);
        Some(PciPlace {
            domain: part(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            bus: part(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            slot: part(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
        })
    }
}

impl fmt::Display for PciPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PciPlace { domain, bus, slot } = self;
        write!(f, "{domain:04x}:{bus:02x}:{slot:02x}.0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_as_the_kernel_calls_it() {
        let mut device = Device::default();
        assert!(PciPlace::of(&device).is_none());
        device.attributes = vec![
            (A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID.0, 0x1b),
            (A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID.0, 0),
            (A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID.0, 1),
        ];
        assert_eq!(PciPlace::of(&device).unwrap().to_string(), "0001:1b:00.0");
    }
}
