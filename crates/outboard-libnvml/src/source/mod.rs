//! Where devices are: on a server, or in this process.

mod here;
mod server;

use outboard_abi::nvml::nvmlReturn_t;
use outboard_client::{Query, QueryError};
use outboard_wire::platform::Platform;

use crate::border::Result;
pub(crate) use here::SoftwareDevice;

/// What knows about devices.
pub(crate) enum Source {
    /// A server, over a connection.
    Server(Query),
    /// The software device that this process uses or would use.
    Here(SoftwareDevice),
}

impl Source {
    /// The devices.
    pub(crate) fn platform(&self) -> &Platform {
        match self {
            Source::Server(server) => server.platform(),
            Source::Here(device) => device.platform(),
        }
    }

    /// Calls a function with the arguments, encoded: its status, and the results, encoded.
    pub(crate) fn query(
        &self,
        function: &str,
        arguments: &[u8],
    ) -> Result<(nvmlReturn_t, Vec<u8>)> {
        match self {
            Source::Server(server) => server::query(server, function, arguments),
            Source::Here(device) => device.query(function, arguments),
        }
    }

    /// The processes of this machine that use a device, each with its bytes of device memory.
    pub(crate) fn processes(&self, device: u32) -> Result<Vec<(u32, u64)>> {
        match self {
            Source::Server(server) => server::processes(server, device),
            Source::Here(here) => Ok(here.processes(device)),
        }
    }
}

/// What a missing source is to NVML.
pub(crate) fn failed(error: QueryError) -> nvmlReturn_t {
    match error {
        // As on a machine without a GPU.
        QueryError::NoDevice => nvmlReturn_t::NVML_ERROR_DRIVER_NOT_LOADED,
        QueryError::Unusable => nvmlReturn_t::NVML_ERROR_UNKNOWN,
        QueryError::Lost => nvmlReturn_t::NVML_ERROR_GPU_IS_LOST,
    }
}
