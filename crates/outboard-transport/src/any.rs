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

fn of(address: &str) -> (&dyn Transport, &str) {
    Endpoint::unix_path(address).map_or((&Tcp, address), |path| (&Unix, path))
}

impl Transport for Any {
    fn name(&self) -> &'static str {
        "any"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let (transport, address) = of(address);
        transport.connect(address, timeout)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let (transport, address) = of(address);
        transport.listen(address)
    }
}
