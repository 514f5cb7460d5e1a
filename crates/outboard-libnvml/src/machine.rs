//! The devices of all servers of the program as those of one machine, or the software device of
//! this process.

use outboard_abi::nvml::nvmlReturn_t;
use outboard_client::target::Target;
use outboard_client::{Query, QueryError};
use outboard_nvml::PciPlace;
use outboard_threads::beside;
use outboard_wire::device_id::DeviceId;
use outboard_wire::platform::{Platform, merged};

use crate::border::Result;
use crate::source::{SoftwareDevice, Source};

/// What knows about the devices, and the devices.
pub(crate) struct Machine {
    sources: Vec<Source>,
    platform: Platform,
}

/// A device as its source knows it: the source's place in the list, and the device's position
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DevicePosition {
    pub(crate) source: usize,
    pub(crate) index: u32,
}

/// Connects to all servers at once.
fn connect(targets: &[Target]) -> std::result::Result<Vec<Query>, QueryError> {
    let Some((last, others)) = targets.split_last() else { return Ok(Vec::new()) };
    if others.is_empty() {
        return Ok(vec![Query::open(last)?]);
    }
    // A thread that cannot be had or has panicked leaves a server unused.
    let (opened, queries) = beside("outboard-nvml", || Query::open(last), || connect(others))
        .map_err(|_| QueryError::Unusable)?;
    let mut queries = queries?;
    queries.push(opened.unwrap_or(Err(QueryError::Unusable))?);
    Ok(queries)
}

impl Machine {
    /// Finds the software device, or connects to the servers that the environment names.
    pub(crate) fn open() -> std::result::Result<Machine, QueryError> {
        if SoftwareDevice::is_asked_for() {
            let device = Source::Here(SoftwareDevice::find().ok_or(QueryError::NoDevice)?);
            let platform = device.platform().clone();
            return Ok(Machine { sources: vec![device], platform });
        }
        let targets = outboard_client::of_this_process().map_err(|_| QueryError::Unusable)?;
        if let [_, _, ..] = targets.servers() {
            targets.servers().iter().for_each(Target::load_what_it_needs);
        }
        let servers = connect(targets.servers())?;
        let platforms = servers.iter().map(|server| server.platform().clone()).collect();
        let platform = merged(platforms, targets.entries());
        Ok(Machine { sources: servers.into_iter().map(Source::Server).collect(), platform })
    }

    /// The devices, as the program sees them.
    pub(crate) fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Where the device at a position of the platform is.
    pub(crate) fn place(&self, position: u32) -> Option<DevicePosition> {
        let id = self.platform.devices.get(position as usize)?.id;
        let source = id.server().place();
        let own = DeviceId::new(id.ordinal());
        let devices = &self.sources[source].platform().devices;
        let index = devices.iter().position(|device| device.id == own)?;
        Some(DevicePosition { source, index: index as u32 })
    }

    /// What a source calls this PCI domain is called so here; one without devices keeps its number.
    pub(crate) fn domain_here(&self, source: usize, domain: u32) -> u32 {
        let of = |device| PciPlace::of(device).map(|place| place.domain);
        let here = (0..).zip(&self.platform.devices).find(|(position, _)| {
            let there = self.place(*position).filter(|place| place.source == source);
            let devices = &self.sources[source].platform().devices;
            there.and_then(|place| of(&devices[place.index as usize])) == Some(domain)
        });
        here.and_then(|(_, device)| of(device)).unwrap_or(domain)
    }

    /// Calls a function of a source with the arguments, encoded: its status, and the results,
    /// encoded.
    pub(crate) fn query(
        &self,
        source: usize,
        function: &str,
        arguments: &[u8],
    ) -> Result<(nvmlReturn_t, Vec<u8>)> {
        self.sources[source].query(function, arguments)
    }

    /// The processes of this machine that use a device, each with its bytes of device memory.
    pub(crate) fn processes(&self, place: DevicePosition) -> Result<Vec<(u32, u64)>> {
        self.sources[place.source].processes(place.index)
    }
}
