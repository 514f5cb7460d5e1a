//! Moves the connections of a session to memory that this virtual machine and its host share.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use outboard_transport::ivshmem::{Device, Part, move_to};
use outboard_transport::{Endpoint, Outcome, Stream};
use outboard_wire::handshake::ivshmem::Offer;
use outboard_wire::handshake::{Hello, Purpose};

use super::config::{Choice, Config};
use super::connect::{Secured, broken};
use super::error::ConnectError;
use super::movable::Settled;

/// The machine's device, if it has one for the session that is to begin; or why it cannot be used.
pub(super) type Found = Result<Option<Device>, String>;

/// Looks for the device. That there is none is an error if the user asks for it.
pub(super) fn device(address: &str, hello: &Hello, config: &Config) -> Result<Found, ConnectError> {
    if !matches!(config.transport, Choice::Auto | Choice::Ivshmem)
        || !matches!(hello.purpose, Purpose::Session { .. })
        || !matches!(address.parse(), Ok(Endpoint::Tcp(_) | Endpoint::Vsock(_)))
    {
        return Ok(Ok(None));
    }
    if config.transport == Choice::Ivshmem {
        return Ok(Ok(Some(needed(config)?)));
    }
    Ok(Device::find(config.ivshmem.as_deref()).map_err(|error| error.to_string()))
}

/// Whether this machine has a device that the program may use.
pub(super) fn check(config: &Config) -> Result<(), ConnectError> {
    needed(config).map(drop)
}

fn needed(config: &Config) -> Result<Device, ConnectError> {
    let found = Device::find(config.ivshmem.as_deref());
    let found = found.map_err(|error| unusable(error.to_string()))?;
    found.ok_or_else(|| unusable("this machine has no device `ivshmem-plain`".to_owned()))
}

pub(super) fn unusable(reason: String) -> ConnectError {
    ConnectError::Transport { wanted: "ivshmem", reason }
}

/// The session's part of the memory.
pub struct Region {
    part: Arc<Part>,
}

impl Region {
    /// The part that the server offers of the device's memory; or why there is none.
    pub(super) fn new(offer: &Offer, device: Device) -> Result<Region, String> {
        if offer.bytes == 0 {
            return Err(format!("the server says: {}", offer.missing));
        }
        let path = device.path().to_owned();
        let part = Part::map(device.into_file(), offer.offset, offer.bytes);
        part.map(|part| Region { part }).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Moves the connection, if it can be. Other users of this machine may read the memory, so
    /// bytes that were encrypted stay so.
    pub(super) fn settle(
        &self,
        met: Arc<dyn Stream>,
        secured: Option<&Secured>,
        address: &str,
        deadline: Instant,
    ) -> Result<Settled, ConnectError> {
        let moved = move_to(&met, &self.part, deadline);
        match (moved.map_err(|error: io::Error| broken(address, error))?, secured) {
            (Outcome::Moved(stream), None) => Ok((stream, None)),
            (Outcome::Moved(stream), Some(secured)) => {
                Ok((secured.take_over(stream, address, deadline)?, None))
            }
            (Outcome::Stays(why), _) => Ok((met, why.map(|why| why.to_string()))),
        }
    }
}
