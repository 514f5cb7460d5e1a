//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`: which devices the program sees, in which order.
//!
//! The runtime does not filter, the driver must. Rules as the CUDA programming guide states them: a
//! list of indices or UUID prefixes; the first entry that names no device ends the list; a device
//! named twice makes the whole list void.

use outboard_wire::platform::{Device, uuid_text};

/// `CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`, `_BUS_ID`, `_DEVICE_ID`: the order of
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
const PCI: [u32; 3] = [50, 33, 34];

/// The devices to show, given the two variables' values.
pub(crate) fn select(
    mut devices: Vec<Device>,
    order: Option<&str>,
    list: Option<&str>,
) -> Vec<Device> {
    if order == Some("PCI_BUS_ID") {
        devices.sort_by_key(|device| PCI.map(|attribute| device.attribute(attribute)));
    }
    let Some(list) = list else { return devices };
    let mut chosen: Vec<usize> = Vec::new();
    for entry in list.split(',') {
        let Some(index) = find(&devices, entry.trim()) else { break };
        if chosen.contains(&index) {
            return Vec::new();
        }
        chosen.push(index);
    }
    chosen.into_iter().map(|index| devices[index].clone()).collect()
}

/// The device that an entry names: its index, or the beginning of exactly one UUID.
fn find(devices: &[Device], entry: &str) -> Option<usize> {
    if let Some(prefix) = entry.strip_prefix("GPU-") {
        let wanted = format!("GPU-{}", prefix.to_ascii_lowercase());
        let mut matches =
            (0..devices.len()).filter(|&i| uuid_text(&devices[i].uuid).starts_with(&wanted));
        let first = matches.next()?;
        return matches.next().is_none().then_some(first);
    }
    let index = entry.parse::<usize>().ok()?;
    (index < devices.len()).then_some(index)
}

#[cfg(test)]
mod tests {
    use outboard_wire::device_id::DeviceId;

    use super::*;

    fn devices() -> Vec<Device> {
        let device = |ordinal: u32, bus: i32| Device {
            id: DeviceId::new(ordinal),
            uuid: std::array::from_fn(|i| if i == 0 { 0xa0 + ordinal as u8 } else { 0xcd }),
            attributes: vec![(33, bus), (34, 0), (50, 0)],
            ..Device::default()
        };
        vec![device(0, 9), device(1, 7), device(2, 8)]
    }

    fn shown(order: Option<&str>, list: Option<&str>) -> Vec<u32> {
        select(devices(), order, list).iter().map(|d| d.id.ordinal()).collect()
    }

    #[test]
    fn all_forms() {
        assert_eq!(shown(None, None), [0, 1, 2]);
        assert_eq!(shown(None, Some("2,0")), [2, 0]);
        assert_eq!(shown(None, Some(" 1 , 2")), [1, 2]);
        assert_eq!(shown(None, Some("")), [0u32; 0]);
        assert_eq!(shown(None, Some("-1")), [0u32; 0]);
        assert_eq!(shown(None, Some("NoDevFiles")), [0u32; 0]);
        assert_eq!(shown(None, Some("0,-1,1")), [0], "the first invalid entry ends the list");
        assert_eq!(shown(None, Some("0,7,1")), [0]);
        assert_eq!(shown(None, Some("1,1")), [0u32; 0], "a duplicate voids the list");
        assert_eq!(shown(None, Some("GPU-a1")), [1]);
        assert_eq!(shown(None, Some("GPU-A1cdcdcd-cdcd,0")), [1, 0]);
        assert_eq!(shown(None, Some("GPU-a")), [0u32; 0], "an ambiguous prefix names nothing");
        assert_eq!(shown(Some("PCI_BUS_ID"), None), [1, 2, 0]);
        assert_eq!(shown(Some("PCI_BUS_ID"), Some("0")), [1]);
        assert_eq!(shown(Some("FASTEST_FIRST"), None), [0, 1, 2]);
    }
}
