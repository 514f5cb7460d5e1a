//! Streams within one process, for tests and for a server in the client's own process.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::descriptor::{Socket, over_a_socket};
use crate::locks::lock;
use crate::stream::{Capabilities, Stream};
use crate::transport::{Listener, Transport};

/// A transport whose addresses are names known to this value and its clones only.
#[derive(Debug, Clone, Default)]
pub struct Pipe {
    servers: Arc<Mutex<Servers>>,
}

/// Sends the clients of each server, by its address.
type Servers = HashMap<String, SyncSender<Arc<dyn Stream>>>;

#[derive(Debug)]
struct PipeServer {
    name: String,
    clients: Mutex<Receiver<Arc<dyn Stream>>>,
    pipe: Pipe,
}

#[derive(Debug)]
struct PipeStream {
    socket: Socket,
}

/// Clients that may wait to be accepted.
const BACKLOG: usize = 64;

/// Two connected streams.
///
/// # Errors
/// The system's error if it has no further descriptors to give.
pub fn pair() -> io::Result<(Arc<dyn Stream>, Arc<dyn Stream>)> {
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok((from_descriptor(a)?, from_descriptor(b)?))
}

/// Makes a stream of a connected Unix socket.
///
/// # Errors
/// The system's error if the descriptor cannot be made non-blocking.
pub fn from_descriptor(fd: OwnedFd) -> io::Result<Arc<dyn Stream>> {
    Ok(Arc::new(PipeStream { socket: Socket::new(fd)? }))
}

impl Transport for Pipe {
    fn name(&self) -> &'static str {
        "pipe"
    }

    fn connect(&self, address: &str, _: Duration) -> io::Result<Arc<dyn Stream>> {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let servers = lock(&self.servers);
        let server = servers.get(address).ok_or_else(refused)?;
        let (here, there) = pair()?;
        server.try_send(there).map_err(|_| refused())?;
        Ok(here)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let (send, clients) = sync_channel(BACKLOG);
        let mut servers = lock(&self.servers);
        if servers.contains_key(address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        servers.insert(address.to_owned(), send);
        Ok(Box::new(PipeServer {
            name: address.to_owned(),
            clients: Mutex::new(clients),
            pipe: self.clone(),
        }))
    }
}

impl Listener for PipeServer {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        let clients = lock(&self.clients);
        clients.recv().map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.name.clone())
    }
}

impl Drop for PipeServer {
    fn drop(&mut self) {
        lock(&self.pipe.servers).remove(&self.name);
    }
}

impl Stream for PipeStream {
    over_a_socket!();

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: true, shares_memory: true, ..Capabilities::default() }
    }

    fn transport(&self) -> &'static str {
        "pipe"
    }

    fn peer(&self) -> String {
        "this process".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::conformance!(Pipe::default(), "server");
}
