//! The transport that connects to an address of any kind.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, sockopt};

use crate::address::{Endpoint, VsockAddress};
use crate::stream::Stream;
use crate::tcp::{self, Tcp};
use crate::transport::{Listener, Transport};
use crate::unix::{self, Unix};
use crate::vsock::{self, Vsock};

/// TCP, or a Unix socket where an address says `unix:PATH`, or vsock where it says `vsock:CID`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Any;

/// Why nobody connects to `local` itself.
const NOT_STARTED: &str = "`local` is this machine's own GPU, for which `outboard run` starts a private server: start the program with `outboard run`, or name a server's socket, unix:/PATH";

/// Nor to a machine that ssh leads to.
const NOT_LED_TO: &str = "on a machine that ssh leads to, `outboard run` starts a server for the program: start the program with `outboard run`, or name a server there by HOST:PORT";

fn of(address: &str) -> (&dyn Transport, &str) {
    match Endpoint::unix_path(address) {
        Some(path) => (&Unix, path),
        None if VsockAddress::parse(address).is_some() => (&Vsock, address),
        None => (&Tcp, address),
    }
}

/// Makes a stream of a connected socket of any of these kinds, as one that another process has
/// accepted.
///
/// # Errors
/// The system's error if the socket takes no options such as its kind has.
pub fn from_descriptor(fd: OwnedFd) -> io::Result<Arc<dyn Stream>> {
    match sockopt::socket_domain(&fd)? {
        AddressFamily::UNIX => unix::from_descriptor(fd),
        AddressFamily::VSOCK => vsock::from_descriptor(fd),
        _ => tcp::from_descriptor(fd),
    }
}

impl Transport for Any {
    fn name(&self) -> &'static str {
        "any"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let not_started = match address.parse() {
            Ok(Endpoint::Local) => Some(NOT_STARTED),
            Ok(Endpoint::Ssh(_)) => Some(NOT_LED_TO),
            _ => None,
        };
        if let Some(why) = not_started {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (transport, address) = of(address);
        transport.connect(address, timeout)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let (transport, address) = of(address);
        transport.listen(address)
    }
}
