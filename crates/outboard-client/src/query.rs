//! A connection that only asks: NVML's. No CUDA context comes of it, on either side.

use outboard_transport::Endpoint;
use outboard_wire::ContextId;
use outboard_wire::handshake::Purpose;
use outboard_wire::messages::Call;
use outboard_wire::platform::Platform;

use crate::link::{Choice, Config, Link};
use crate::session::{Opened, explain, open_link};
use crate::target::Target;

/// The connection, and what the server offers over it.
#[derive(Debug)]
pub struct Query {
    link: Link,
    platform: Platform,
}

/// Why there is no connection, or no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// No server is named and none is on this machine, or it has no device.
    #[error("there is no server with a device")]
    NoDevice,
    /// The server cannot be reached or refuses this client.
    #[error("the server cannot be used")]
    Unusable,
    /// The connection is gone.
    #[error("the connection is lost")]
    Lost,
}

impl Query {
    /// Connects to a server.
    pub fn open(target: &Target) -> Result<Query, QueryError> {
        let mut config = Config::of_server(target);
        if matches!(config.transport, Choice::Auto | Choice::Ivshmem) {
            // Shared memory is not worth a connection more, nor a part of a region.
            config.transport = match target.address {
                Endpoint::Unix(_) => Choice::Auto,
                Endpoint::Vsock(_) => Choice::Vsock,
                Endpoint::Tcp(_) | Endpoint::Local | Endpoint::Ssh(_) => Choice::Tcp,
            };
        }
        // A server's notices are about work, and this connection gives it none.
        let Opened { link, platform, .. } =
            open_link(target, config, Box::new(|_, _| {}), None, |devices| Purpose::Management {
                devices,
            })
            .map_err(|error| {
                explain(&error);
                if error.is_no_device() { QueryError::NoDevice } else { QueryError::Unusable }
            })?;
        Ok(Query { link, platform })
    }

    /// What the server offers.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Asks, and returns the encoded answer; `None` for a message that the server does not know
    /// or could not answer.
    pub fn ask<M: Call>(&self, message: &M) -> Result<Option<Vec<u8>>, QueryError> {
        if !self.link.knows::<M>() {
            return Ok(None);
        }
        let reply = self
            .link
            .call(M::OP, ContextId::NONE, |writer| message.encode(writer))
            .map_err(|_| QueryError::Lost)?;
        Ok((reply.status == 0).then_some(reply.payload))
    }
}
