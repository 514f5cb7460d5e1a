//! Authentication: tokens, certificates, and which clients need them.
//!
//! The supervisor asks [`Gate`] about each hello that starts something. A client that proves to
//! have a session's key is that session's owner and needs nothing else.

mod gate;

use std::path::PathBuf;

pub use outboard_auth::files::usual_state_folder;
pub use outboard_auth::{AuthError, certificate, tokens};

use crate::vsock::{self, Place};
pub(crate) use gate::{Gate, Way};

/// Whether connections over TCP are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// They must be, except those from the machine itself, which may be.
    #[default]
    Auto,
    /// They must be.
    On,
    /// They cannot be.
    Off,
}

/// How a server knows its clients.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Whether connections are encrypted.
    pub tls: Tls,
    /// The server's certificate, in PEM. Without it, the server has one of its own making in its
    /// folder.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    pub key: Option<PathBuf>,
    /// Authorities whose certificates clients may show, in PEM.
    pub client_ca: Option<PathBuf>,
    /// The folder where the server keeps its certificate and the tokens; without it, there are
    /// neither.
    pub state: Option<PathBuf>,
    /// Clients show leases of the server's pool.
    pub leases: bool,
    /// Every client that can connect is accepted, wherever the server listens.
    pub allow_anonymous: bool,
    /// Every client over TCP must authenticate itself, on loopback too.
    pub required: bool,
}

/// Whether a server with these settings would come up at this address, and where virtual machines
/// reach it, as far as its clients are concerned.
pub fn check(
    config: &Config,
    address: std::net::SocketAddr,
    guests: &[Place],
) -> Result<(), AuthError> {
    gate::Gate::open(config, address, vsock::are_let_in(guests)).map(drop)
}
