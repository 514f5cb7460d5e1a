//! Gauges of the devices, for the supervisor.

use crate::budget::MemoryLimits;
use outboard_abi::nvml::nvmlReturn_t;
use outboard_nvml::{Gauges, gauges};
use outboard_wire::DecodeError;
use outboard_wire::platform::{Device, Platform, uuid_text};

use super::io::Gauge;
use super::management::Management;
use super::prepared::Prepared;

/// A function that returns the devices' gauges.
pub(super) fn watch(prepared: Prepared) -> Box<dyn FnMut() -> Vec<Gauge>> {
    let Prepared { setup, platform, .. } = prepared;
    let mut management = Management::new(setup.driver, MemoryLimits::default());
    management.use_library(setup.nvml);
    Box::new(move || all(&management, &platform))
}

fn all(management: &Management, platform: &Platform) -> Vec<Gauge> {
    let look = |(index, device): (usize, &Device)| {
        let now = gauges(index as u32, |function, arguments| {
            let (status, results) = management.answer(platform, function.name, arguments)?;
            Ok((status == nvmlReturn_t::NVML_SUCCESS).then_some(results))
        });
        Gauge {
            ordinal: device.id.ordinal(),
            name: device.name.clone(),
            uuid: uuid_text(&device.uuid),
            memory: device.total_memory,
            // Arguments of our own making can be decoded.
            now: now.unwrap_or_else(|_: DecodeError| Gauges::default()),
        }
    };
    platform.devices.iter().enumerate().map(look).collect()
}
