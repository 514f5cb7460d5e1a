//! The devices of all servers of the program as those of one machine, and a connection to each
//! server.

use outboard_client::target::Target;
use outboard_client::{Query, QueryError};
use outboard_threads::beside;
use outboard_wire::device_id::DeviceId;
use outboard_wire::messages::Call;
use outboard_wire::platform::{Device, Platform, merged};

/// The connections, and the devices behind them.
pub(crate) struct Machine {
    servers: Vec<Query>,
    platform: Platform,
}

/// A device as one connection knows it: the server's place in the list, and the device's position
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DevicePosition {
    pub(crate) server: usize,
    pub(crate) index: u32,
}

/// Connects to all servers at once.
fn connect(targets: &[Target]) -> Result<Vec<Query>, QueryError> {
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
    /// Connects to the servers that the environment names.
    pub(crate) fn open() -> Result<Machine, QueryError> {
        let targets = outboard_client::of_this_process().map_err(|_| QueryError::Unusable)?;
        if let [_, _, ..] = targets.servers() {
            targets.servers().iter().for_each(Target::load_what_it_needs);
        }
        let servers = connect(targets.servers())?;
        let platforms = servers.iter().map(|server| server.platform().clone()).collect();
        Ok(Machine { servers, platform: merged(platforms, targets.entries()) })
    }

    /// The devices, as the program sees them.
    pub(crate) fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Where the device at a position of the platform is.
    pub(crate) fn place(&self, position: u32) -> Option<DevicePosition> {
        let id = self.platform.devices.get(position as usize)?.id;
        let server = id.server().place();
        let own = DeviceId::new(id.ordinal());
        let index =
            self.servers[server].platform().devices.iter().position(|device| device.id == own)?;
        Some(DevicePosition { server, index: index as u32 })
    }

    /// The device at a position, if its PCI domain is another one here than on its server.
    pub(crate) fn moved(&self, position: u32) -> Option<&Device> {
        let (device, place) =
            (self.platform.devices.get(position as usize)?, self.place(position)?);
        let there = &self.servers[place.server].platform().devices[place.index as usize];
        (device.attributes != there.attributes).then_some(device)
    }

    /// Asks a server, and returns the encoded answer; `None` for a message that the server could
    /// not answer.
    pub(crate) fn ask<M: Call>(
        &self,
        server: usize,
        message: &M,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        self.servers[server].ask(message)
    }
}
