//! Gauges of the devices, for the supervisor.

use crate::budget::MemoryLimits;
use outboard_abi::nvml::nvmlReturn_t;
use outboard_nvml::{Answer, Function, failure, gauges, linked};
use outboard_wire::DecodeError;
use outboard_wire::platform::{Platform, uuid_text};

use super::io::Gauge;
use super::management::Management;
use super::prepared::Prepared;

/// A function that returns the devices' gauges.
pub(super) fn watch(prepared: Prepared) -> Box<dyn FnMut() -> Vec<Gauge>> {
    let Prepared { setup, platform, .. } = prepared;
    let mut management = Management::new(setup.driver, MemoryLimits::default());
    management.use_library(setup.nvml);
    let devices = Devices { management, platform };
    // Devices are not wired anew while a server runs.
    let mut links = None;
    Box::new(move || devices.look(links.get_or_insert_with(|| devices.links())))
}

struct Devices {
    management: Management,
    platform: Platform,
}

impl Devices {
    fn look(&self, links: &[Vec<u32>]) -> Vec<Gauge> {
        let devices = (0..).zip(&self.platform.devices).zip(links);
        devices
            .map(|((index, device), links)| {
                let now = gauges(index, |function, arguments| {
                    let (status, results) = self.ask(function, arguments)?;
                    Ok((status == nvmlReturn_t::NVML_SUCCESS).then_some(results))
                });
                // Arguments of our own making can be decoded.
                let now = now.unwrap_or_else(|_: DecodeError| Default::default());
                let failure = failure(index, |function, given| self.ask(function, given));
                Gauge {
                    ordinal: device.id.ordinal(),
                    name: device.name.clone(),
                    uuid: uuid_text(&device.uuid),
                    memory: device.total_memory,
                    now,
                    failure: failure.ok().flatten().map(str::to_owned),
                    nvlink: links.clone(),
                }
            })
            .collect()
    }

    /// Of each device, the ordinals of those to which NVLink leads.
    fn links(&self) -> Vec<Vec<u32>> {
        let devices = &self.platform.devices;
        let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        let of = |index| {
            let linked = linked(index, count, |function, given| self.ask(function, given));
            let positions = linked.unwrap_or_default();
            positions.into_iter().map(|at| devices[at as usize].id.ordinal()).collect()
        };
        (0..count).map(of).collect()
    }

    fn ask(&self, function: &Function, arguments: &[u8]) -> Result<Answer, DecodeError> {
        self.management.answer(&self.platform, function.name, arguments)
    }
}
