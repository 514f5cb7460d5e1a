//! Whether a device can be given to anybody, and to which others NVLink leads.

use outboard_abi::nvml::{nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t, nvmlReturn_t};
use outboard_wire::Reader;

use crate::codec::{Given, arguments};
use crate::description::{Function, find};

/// The status of a function, and its results, encoded.
pub type Answer = (nvmlReturn_t, Vec<u8>);

/// Why a device can be given to nobody, if so. `ask` calls a function with the arguments, encoded.
///
/// # Errors
/// The error of `ask`.
pub fn failure<E>(
    device: u32,
    ask: impl FnOnce(&'static Function, &[u8]) -> Result<Answer, E>,
) -> Result<Option<&'static str>, E> {
    /// Corrected, uncorrectable, pending, and whether rows could not be replaced.
    const FAILED: usize = 3;
    let Some(function) = find("nvmlDeviceGetRemappedRows") else { return Ok(None) };
    let memory = Given::Memory(&[]);
    let given = [Given::Device(device), memory, memory, memory, memory];
    let (status, results) = ask(function, &arguments(function, &given))?;
    Ok(match status {
        nvmlReturn_t::NVML_SUCCESS => (result(&results, FAILED).unwrap_or(0) != 0)
            .then_some("rows of its memory are broken, and there are no others in their place"),
        nvmlReturn_t::NVML_ERROR_GPU_IS_LOST => Some("its driver cannot reach it any more"),
        _ => None,
    })
}

/// The positions, of so many, of the devices to which NVLink leads from this one, directly or by
/// switches. `ask` as for [`failure`].
///
/// # Errors
/// The error of `ask`.
pub fn linked<E>(
    device: u32,
    count: u32,
    mut ask: impl FnMut(&'static Function, &[u8]) -> Result<Answer, E>,
) -> Result<Vec<u32>, E> {
    let mut linked = Vec::new();
    let Some(function) = find("nvmlDeviceGetP2PStatus") else { return Ok(linked) };
    let nvlink = Given::Number(nvmlGpuP2PCapsIndex_t::NVML_P2P_CAPS_INDEX_NVLINK.0.into());
    for other in (0..count).filter(|other| *other != device) {
        let given = [Given::Device(device), Given::Device(other), nvlink, Given::Memory(&[])];
        let (status, results) = ask(function, &arguments(function, &given))?;
        let is_linked = result(&results, 0) == Some(nvmlGpuP2PStatus_t::NVML_P2P_STATUS_OK.0);
        if status == nvmlReturn_t::NVML_SUCCESS && is_linked {
            linked.push(other);
        }
    }
    Ok(linked)
}

/// One of the results, each of which is a number.
fn result(results: &[u8], index: usize) -> Option<u32> {
    let mut reader = Reader::new(results);
    (0..index).try_for_each(|_| reader.bytes().map(drop)).ok()?;
    Some(u32::from_le_bytes(*reader.bytes().ok()?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use outboard_wire::Writer;

    use super::*;
    use crate::{Argument, decode};

    fn numbers(numbers: &[u32]) -> Vec<u8> {
        let mut writer = Writer::new();
        numbers.iter().for_each(|number| writer.bytes(&number.to_le_bytes()));
        writer.into_vec()
    }

    #[test]
    fn a_device_that_is_lost_or_has_broken_memory_has_failed() {
        let told = |status, results: Vec<u8>| {
            failure::<Infallible>(1, |function, given| {
                assert_eq!(decode(function, given).unwrap()[0], Argument::Device(1));
                Ok((status, results))
            })
            .unwrap()
        };
        let success = nvmlReturn_t::NVML_SUCCESS;
        assert_eq!(told(success, numbers(&[9, 9, 1, 0])), None);
        assert!(told(success, numbers(&[0, 0, 0, 1])).unwrap().contains("broken"));
        assert!(told(nvmlReturn_t::NVML_ERROR_GPU_IS_LOST, vec![]).unwrap().contains("reach"));
        // A device that has no such rows, and an answer that is too short.
        assert_eq!(told(nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED, vec![]), None);
        assert_eq!(told(success, numbers(&[1, 1, 1])), None);
    }

    #[test]
    fn neighbours_are_those_to_which_nvlink_leads() {
        let told = linked::<Infallible>(1, 4, |function, given| {
            let given = decode(function, given).unwrap();
            assert_eq!((&given[0], &given[2]), (&Argument::Device(1), &Argument::Number(2)));
            Ok(match given[1] {
                Argument::Device(0) => (nvmlReturn_t::NVML_SUCCESS, numbers(&[0])),
                Argument::Device(2) => (nvmlReturn_t::NVML_SUCCESS, numbers(&[5])),
                _ => (nvmlReturn_t::NVML_ERROR_NOT_SUPPORTED, Vec::new()),
            })
        });
        assert_eq!(told, Ok(vec![0]));
    }
}
