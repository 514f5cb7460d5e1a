//! Settings of the metrics, and why they cannot be served.

use std::io;
use std::net::SocketAddr;

use outboard_wire::Code;

/// Settings of the HTTP server.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// `ADDRESS:PORT`; nowhere without it.
    pub listen: Option<String>,
    /// Whether other machines may read them, names of owners included.
    pub public: bool,
    /// Names by which they are asked for, beside addresses and this machine's own.
    pub hosts: Vec<String>,
}

/// Why metrics cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The address cannot be listened at.
    #[error("cannot listen for metrics at {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// Others would read them.
    #[error(
        "metrics at {0} could be read by other machines, and they name owners; listen on loopback and have the monitoring system come \
         through it, or say --metrics-public"
    )]
    Public(SocketAddr),
}

impl MetricsError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            MetricsError::Listen { .. } => Code::MetricsUnusable,
            MetricsError::Public(_) => Code::MetricsPublic,
        }
    }
}
