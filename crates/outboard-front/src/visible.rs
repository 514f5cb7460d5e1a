//! `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`: which devices the program sees, in which order.
//!
//! The runtime does not filter, the driver must. The rules are those of NVIDIA's driver (580.159),
//! as seen: a list of numbers, or one of UUIDs or their beginnings. The first entry that names no
//! device, or is not of the kind of the first one, ends the list. A device that is named twice is
//! an error, as is an order that there is not.

use outboard_abi::CUresult;
use outboard_wire::platform::{Device, uuid_text};

use crate::backend::Result;
use crate::variables::number;

/// `CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`, `_BUS_ID`, `_DEVICE_ID`: the order of
/// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
const PCI: [u32; 3] = [50, 33, 34];

/// Digits of a UUID.
const DIGITS: usize = 32;

/// The devices to show, given the two variables' values.
pub(crate) fn select(
    mut devices: Vec<Device>,
    order: Option<&str>,
    list: Option<&str>,
) -> Result<Vec<Device>> {
    match order {
        None | Some("FASTEST_FIRST") => {}
        Some("PCI_BUS_ID") => {
            devices.sort_by_key(|device| PCI.map(|attribute| device.attribute(attribute)));
        }
        Some(_) => return Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
    }
    let Some(list) = list else { return Ok(devices) };
    let find = if uuid(list).is_some() { by_uuid } else { by_number };
    let mut chosen: Vec<usize> = Vec::new();
    for entry in list.split(',') {
        let Some(index) = find(&devices, entry) else { break };
        if chosen.contains(&index) {
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        chosen.push(index);
    }
    Ok(chosen.into_iter().map(|index| devices[index].clone()).collect())
}

/// The device of a number, as C reads one: what is behind it does not count, and of a large one
/// only the lower half.
fn by_number(devices: &[Device], entry: &str) -> Option<usize> {
    let index = usize::try_from(number(entry)? as i32).ok()?;
    (index < devices.len()).then_some(index)
}

/// The entry behind what says that it is a UUID.
fn uuid(entry: &str) -> Option<&str> {
    entry.strip_prefix("GPU-").or_else(|| entry.strip_prefix("MIG-"))
}

/// The device of the only UUID that begins so. Dashes do not count, nor does what is behind a whole
/// one.
fn by_uuid(devices: &[Device], entry: &str) -> Option<usize> {
    let digits = |text: &str| -> String {
        let digits = text.chars().filter(|digit| *digit != '-').take(DIGITS);
        digits.map(|digit| digit.to_ascii_lowercase()).collect()
    };
    let wanted = digits(uuid(entry)?);
    if wanted.is_empty() {
        return None;
    }
    let has = |device: &Device| {
        uuid(&uuid_text(&device.uuid)).is_some_and(|own| digits(own).starts_with(&wanted))
    };
    let mut matches = (0..devices.len()).filter(|&index| has(&devices[index]));
    let first = matches.next()?;
    matches.next().is_none().then_some(first)
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

    fn shown(order: Option<&str>, list: Option<&str>) -> Result<Vec<u32>> {
        let devices = select(devices(), order, list)?;
        Ok(devices.iter().map(|device| device.id.ordinal()).collect())
    }

    #[test]
    fn numbers_are_read_as_in_c() {
        assert_eq!(shown(None, None), Ok(vec![0, 1, 2]));
        for (list, wanted) in [
            ("2,0", &[2, 0][..]),
            (" 1 , 2", &[1, 2]),
            ("0x1,+2,-0", &[1, 2, 0]),
            ("0;1", &[0]),
            ("1abc,2.5,0-1", &[1, 2, 0]),
            ("01,002", &[1, 2]),
            ("0x", &[0]),
            ("4294967297", &[1]),
            ("-4294967294", &[2]),
            ("0,-1,1", &[0]),
            ("0,7,0", &[0]),
            ("0,,1", &[0]),
            ("0,GPU-a1", &[0]),
            ("", &[]),
            (",0", &[]),
            ("-1", &[]),
            ("010", &[]),
            ("(0)", &[]),
            ("18446744073709551616", &[]),
            ("NoDevFiles", &[]),
        ] {
            assert_eq!(shown(None, Some(list)).as_deref(), Ok(wanted), "{list:?}");
        }
    }

    #[test]
    fn uuids_may_be_cut_short() {
        let whole = "GPU-a1cdcdcd-cdcd-cdcd-cdcd-cdcdcdcdcdcd";
        for (list, wanted) in [
            ("GPU-a1", &[1][..]),
            ("GPU-A1cdcdcd-cdcd,GPU-a0", &[1, 0]),
            (whole, &[1]),
            (&whole.replace("d-c", "dc"), &[1]),
            (&format!("{whole}x,GPU-a0"), &[1, 0]),
            (&format!("{whole},0"), &[1]),
            ("MIG-a1cdcdcd", &[1]),
            ("GPU-a1,GPU-ff,GPU-a0", &[1]),
            ("GPU-a", &[]),
            ("GPU-", &[]),
            ("GPU", &[]),
            (" GPU-a1", &[]),
            ("gpu-a1", &[]),
            ("a1cdcdcd", &[]),
            ("MIG-GPU-a1", &[]),
        ] {
            assert_eq!(shown(None, Some(list)).as_deref(), Ok(wanted), "{list:?}");
        }
    }

    #[test]
    fn a_device_that_is_named_twice_is_an_error() {
        let twice = Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        for list in ["1,1", "0,0x0", "0 ,0", "0,-0", "GPU-a1,GPU-a1cd", "0,1,0"] {
            assert_eq!(shown(None, Some(list)), twice, "{list:?}");
        }
    }

    #[test]
    fn an_order_that_there_is_not_is_an_error() {
        assert_eq!(shown(Some("PCI_BUS_ID"), None), Ok(vec![1, 2, 0]));
        assert_eq!(shown(Some("PCI_BUS_ID"), Some("0")), Ok(vec![1]));
        assert_eq!(shown(Some("FASTEST_FIRST"), None), Ok(vec![0, 1, 2]));
        for order in ["", "wrong", "pci_bus_id", " PCI_BUS_ID", "PCI_BUS_ID ", "0"] {
            let wrong = Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
            assert_eq!(shown(Some(order), None), wrong, "{order:?}");
        }
    }
}
