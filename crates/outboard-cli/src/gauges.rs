//! Gauges of a server's devices, from its NVML. A connection for questions only: no driver is
//! started for it.

use outboard_client::target::Target;
use outboard_client::{Query, QueryError};
use outboard_wire::Reader;
use outboard_wire::messages::{NvmlQuery, NvmlQueryReply};
use outboard_wire::platform::{Device, uuid_text};
use serde::Serialize;

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: (u32, u32) = (75, 76);

/// The connection.
pub(crate) struct Gauges {
    query: Query,
}

/// A device and how it does; an unknown value is `None`.
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
    /// The part of its memory that is in use.
    pub(crate) fn used_part(&self) -> Option<f64> {
        let used = self.memory_used_bytes? as f64;
        (self.memory_bytes > 0).then(|| used / self.memory_bytes as f64)
    }

    /// The part of a device's description that needs no query.
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

impl Gauges {
    /// Connects to a server; `None` if it does not answer such questions.
    pub(crate) fn open(server: &Target) -> Option<Gauges> {
        Query::open(server).ok().map(|query| Gauges { query })
    }

    /// Asks how all devices do; `None` when the connection is gone.
    pub(crate) fn read(&self) -> Option<Vec<Gauge>> {
        let devices = self.query.platform().devices.iter().enumerate();
        devices.map(|(index, device)| self.read_one(Gauge::of(index, device))).collect()
    }

    fn read_one(&self, mut gauge: Gauge) -> Option<Gauge> {
        let now: Result<outboard_nvml::Gauges, QueryError> =
            outboard_nvml::gauges(gauge.index, |function, arguments| {
                let message = NvmlQuery { function: function.name, arguments };
                let Some(payload) = self.query.ask(&message)? else { return Ok(None) };
                let reply: Option<NvmlQueryReply<'_>> = Reader::new(&payload).get().ok();
                Ok(reply.filter(|reply| reply.status == 0).map(|reply| reply.results.to_vec()))
            });
        let now = now.ok()?;
        gauge.memory_free_bytes = now.memory_free;
        gauge.memory_used_bytes = now.memory_used;
        gauge.utilisation = now.utilisation;
        gauge.temperature = now.temperature;
        gauge.watts = now.milliwatts.map(|milliwatts| f64::from(milliwatts) / 1000.0);
        Some(gauge)
    }
}
