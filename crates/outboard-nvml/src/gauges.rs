//! How a device does at this moment: what is asked, and what the answers say.

use std::ffi::c_uint;

use outboard_wire::{Reader, record};

use crate::codec::{Given, arguments};
use crate::description::{Function, find};

/// `NVML_TEMPERATURE_GPU`.
const GPU: u64 = 0;

/// How a device does; what its NVML does not know is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Bytes of memory that are free, ...
    pub memory_free: Option<u64>,
    /// ... and those that are not.
    pub memory_used: Option<u64>,
    /// Percent of the time in which a kernel ran.
    pub utilisation: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// What it takes, in milliwatts.
    pub milliwatts: Option<u32>,
}

record!(Gauges { memory_free, memory_used, utilisation, temperature, milliwatts });

/// How the device at this position does. `ask` calls a function with the arguments, encoded; what
/// it returns are the results, if the function had any.
///
/// # Errors
/// The error of `ask`.
pub fn gauges<E>(
    device: u32,
    mut ask: impl FnMut(&'static Function, &[u8]) -> Result<Option<Vec<u8>>, E>,
) -> Result<Gauges, E> {
    const NUMBER: usize = size_of::<c_uint>();
    let (device, memory) = (Given::Device(device), Given::Memory(&[]));
    let mut written = |name: &str, given: &[Given<'_>]| {
        let Some(function) = find(name) else { return Ok(None) };
        let results = ask(function, &arguments(function, given))?;
        Ok(results.and_then(|results| Reader::new(&results).bytes().ok().map(<[u8]>::to_vec)))
    };
    // Total, free, used.
    let info = written("nvmlDeviceGetMemoryInfo", &[device, memory])?.unwrap_or_default();
    let mut first = |name, given: &[Given<'_>]| {
        let answer = written(name, given)?.unwrap_or_default();
        Ok(number(&answer, 0, NUMBER).and_then(|number| u32::try_from(number).ok()))
    };
    Ok(Gauges {
        memory_free: number(&info, 1, size_of::<u64>()),
        memory_used: number(&info, 2, size_of::<u64>()),
        utilisation: first("nvmlDeviceGetUtilizationRates", &[device, memory])?,
        temperature: first("nvmlDeviceGetTemperature", &[device, Given::Number(GPU), memory])?,
        milliwatts: first("nvmlDeviceGetPowerUsage", &[device, memory])?,
    })
}

/// One of the numbers that follow each other, of so many bytes each.
fn number(bytes: &[u8], index: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(index * size..(index + 1) * size)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use outboard_wire::Writer;

    use super::*;

    #[test]
    fn numbers_are_taken_from_memory() {
        let bytes = [1, 0, 0, 0, 2, 1, 0, 0];
        assert_eq!(
            (number(&bytes, 0, 4), number(&bytes, 1, 4), number(&bytes, 2, 4)),
            (Some(1), Some(258), None)
        );
    }

    #[test]
    fn what_a_library_does_not_know_is_left_out() {
        let mut asked = Vec::new();
        let answered = gauges::<Infallible>(3, |function, _| {
            asked.push(function.name);
            let mut writer = Writer::new();
            match function.name {
                "nvmlDeviceGetMemoryInfo" => {
                    writer.bytes(&[9_u64, 4, 5].map(u64::to_le_bytes).concat());
                }
                "nvmlDeviceGetPowerUsage" => writer.bytes(&70_000_u32.to_le_bytes()),
                // Less than a number.
                "nvmlDeviceGetTemperature" => writer.bytes(&[1, 2]),
                _ => return Ok(None),
            }
            Ok(Some(writer.into_vec()))
        });
        let wanted = Gauges {
            memory_free: Some(4),
            memory_used: Some(5),
            milliwatts: Some(70_000),
            ..Gauges::default()
        };
        assert_eq!(answered, Ok(wanted));
        assert_eq!(asked.len(), 4, "each of them is described: {asked:?}");
        assert_eq!(gauges(0, |_, _| Err("gone")), Err("gone"));
    }
}
