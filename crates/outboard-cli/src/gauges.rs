//! What a server's NVML says of its devices at this moment. A connection for questions only: no driver is started for it.

use outboard_client::Query;
use outboard_client::target::{Target, VARIABLE};
use outboard_nvml::{Given, encode, find};
use outboard_wire::messages::{NvmlQuery, NvmlQueryReply};
use outboard_wire::platform::{Device, uuid_text};
use outboard_wire::{Reader, Writer};
use serde::Serialize;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: (u32, u32) = (75, 76);
/// `NVML_TEMPERATURE_GPU`.
const GPU: u64 = 0;

/// The connection.
pub(crate) struct Gauges {
    query: Query,
}

/// A device and how it does; what nobody knows is `None`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Gauge {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) compute_capability: String,
    pub(crate) memory_bytes: u64,
    pub(crate) memory_used_bytes: Option<u64>,
    pub(crate) memory_free_bytes: Option<u64>,
    /// Percent of the time in which a kernel ran.
    pub(crate) utilisation: Option<u32>,
    /// Degrees Celsius.
    pub(crate) temperature: Option<u32>,
    pub(crate) watts: Option<f64>,
}

impl Gauge {
    /// What is known of a device without asking.
    pub(crate) fn of(index: usize, device: &Device) -> Gauge {
        let part = |attribute| device.attribute(attribute).unwrap_or(0);
        Gauge {
            index: index as u32,
            name: device.name.clone(),
            uuid: uuid_text(&device.uuid),
            compute_capability: format!("{}.{}", part(CAPABILITY.0), part(CAPABILITY.1)),
            memory_bytes: device.total_memory,
            ..Gauge::default()
        }
    }
}

/// Has the client library in this process use a server.
///
/// # Safety
/// No other thread of this process reads or writes its environment.
pub(crate) unsafe fn choose(server: &str) {
    // SAFETY: by the contract above.
    unsafe { std::env::set_var(VARIABLE, server) };
}

/// Has it use this one.
///
/// # Safety
/// As of [`choose`].
pub(crate) unsafe fn choose_target(target: &Target) {
    // SAFETY: by the contract above.
    unsafe { choose(&target.address.to_string()) };
}

impl Gauges {
    /// Connects to the server that was chosen; `None` if it does not answer such questions.
    pub(crate) fn open() -> Option<Gauges> {
        Query::open().ok().map(|query| Gauges { query })
    }

    /// Asks how all devices do; `None` when the connection is gone.
    pub(crate) fn read(&self) -> Option<Vec<Gauge>> {
        let devices = self.query.platform().devices.iter().enumerate();
        devices.map(|(index, device)| self.read_one(Gauge::of(index, device))).collect()
    }

    fn read_one(&self, mut gauge: Gauge) -> Option<Gauge> {
        let device = Given::Device(gauge.index);
        let memory = Given::Memory(&[]);
        if let Some(info) = self.ask("nvmlDeviceGetMemoryInfo", &[device, memory])? {
            // Total, free, used.
            gauge.memory_free_bytes = number(&info, 1, 8);
            gauge.memory_used_bytes = number(&info, 2, 8);
        }
        let rates = self.ask("nvmlDeviceGetUtilizationRates", &[device, memory])?;
        gauge.utilisation = rates.and_then(|rates| number(&rates, 0, 4)).map(|percent| percent as u32);
        let degrees = self.ask("nvmlDeviceGetTemperature", &[device, Given::Number(GPU), memory])?;
        gauge.temperature = degrees.and_then(|degrees| number(&degrees, 0, 4)).map(|degrees| degrees as u32);
        let power = self.ask("nvmlDeviceGetPowerUsage", &[device, memory])?;
        gauge.watts = power.and_then(|power| number(&power, 0, 4)).map(|milliwatts| milliwatts as f64 / 1000.0);
        Some(gauge)
    }

    /// The memory that a function has written, if it could; `None` when the connection is gone.
    fn ask(&self, name: &str, given: &[Given<'_>]) -> Option<Option<Vec<u8>>> {
        let Some(function) = find(name) else { return Some(None) };
        let mut writer = Writer::new();
        encode(function, given, &mut writer);
        let message = NvmlQuery { function: function.name, arguments: writer.as_slice() };
        let Some(payload) = self.query.ask(&message).ok()? else { return Some(None) };
        let reply: Option<NvmlQueryReply<'_>> = Reader::new(&payload).get().ok();
        let results = reply.filter(|reply| reply.status == 0).map(|reply| reply.results);
        Some(results.and_then(|results| Reader::new(results).bytes().ok().map(<[u8]>::to_vec)))
    }
}

/// One of the numbers that follow each other, of so many bytes each.
fn number(bytes: &[u8], index: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(index * size..(index + 1) * size)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_from_memory() {
        let bytes = [1, 0, 0, 0, 2, 1, 0, 0];
        assert_eq!((number(&bytes, 0, 4), number(&bytes, 1, 4), number(&bytes, 2, 4)), (Some(1), Some(258), None));
    }

    #[test]
    fn the_functions_that_are_asked_are_described() {
        for (name, params) in [
            ("nvmlDeviceGetMemoryInfo", 2),
            ("nvmlDeviceGetUtilizationRates", 2),
            ("nvmlDeviceGetTemperature", 3),
            ("nvmlDeviceGetPowerUsage", 2),
        ] {
            assert_eq!(find(name).map(|function| function.params.len()), Some(params), "{name}");
        }
    }
}
