//! The transport that connects to an address of any kind.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::address::Endpoint;
use crate::stream::Stream;
use crate::tcp::Tcp;
use crate::transport::{Listener, Transport};
use crate::unix::Unix;

/// TCP, or a Unix socket where an address says `unix:PATH`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Any;

/// Why nobody connects to `local` itself.
const NOT_STARTED: &str = "`local` is this machine's own GPU, for which `outboard run` starts a private server: start the program with `outboard run`, or name a server's socket, unix:/PATH";

/// Nor to a machine that ssh leads to.
const NOT_LED_TO: &str = "on a machine that ssh leads to, `outboard run` starts a server for the program: start the program with `outboard run`, or name a server there by HOST:PORT";

fn of(address: &str) -> (&dyn Transport, &str) {
    Endpoint::unix_path(address).map_or((&Tcp, address), |path| (&Unix, path))
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
