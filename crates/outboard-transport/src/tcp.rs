//! TCP.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::descriptor::{Socket, over_a_socket};
use crate::{Address, Capabilities, Listener, Stream, Transport};

/// The TCP transport. Addresses are `HOST:PORT`, as in [`Address`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Tcp;

#[derive(Debug)]
struct TcpServer {
    listener: TcpListener,
}

#[derive(Debug)]
struct TcpConnection {
    socket: Socket,
    peer: String,
}

/// A connection on which nothing moves is probed after this time, then at [`PROBE_INTERVAL`]; [`PROBES`] unanswered
/// ones end it.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// Bytes under way that were sent again this often without any answer mean that the peer is gone: about 25 seconds
/// from the first, as each attempt waits twice as long as the one before.
const RETRANSMISSIONS: u8 = 7;

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let deadline = Instant::now() + timeout;
        let mut last = io::Error::new(io::ErrorKind::NotFound, format!("`{address}` has no address"));
        for candidate in resolve(address)? {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&candidate, left) {
                Ok(stream) => return from_descriptor(stream.into()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        // Port 0 asks for any free port; `Address` does not allow it, since no client can mean it.
        let candidates: Vec<SocketAddr> = match address.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) => resolve(address)?.collect(),
        };
        Ok(Box::new(TcpServer { listener: TcpListener::bind(&candidates[..])? }))
    }
}

/// Makes a stream of a connected TCP socket, as one that another process has accepted.
pub fn from_descriptor(fd: OwnedFd) -> io::Result<Arc<dyn Stream>> {
    sockopt::set_tcp_nodelay(&fd, true)?;
    sockopt::set_socket_keepalive(&fd, true)?;
    sockopt::set_tcp_keepidle(&fd, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(&fd, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&fd, PROBES)?;
    let peer = match rustix::net::getpeername(&fd) {
        Ok(Some(address)) => SocketAddr::try_from(address).map_or_else(|_| "unknown".to_owned(), |a| a.to_string()),
        _ => "unknown".to_owned(),
    };
    Ok(Arc::new(TcpConnection { socket: Socket::new(fd)?, peer }))
}

/// The numeric addresses of a server. A name without any is `NotFound`.
pub fn resolve(address: &str) -> io::Result<impl Iterator<Item = SocketAddr> + use<>> {
    let address: Address = address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    (address.host.as_str(), address.port).to_socket_addrs().map_err(|error| match error.raw_os_error() {
        Some(_) => error,
        None => io::Error::new(io::ErrorKind::NotFound, error),
    })
}

impl Listener for TcpServer {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        let (stream, _) = self.listener.accept()?;
        from_descriptor(stream.into())
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.listener.local_addr()?.to_string())
    }
}

impl Stream for TcpConnection {
    over_a_socket!();

    /// Keepalive probes are not sent while bytes are under way, and `TCP_USER_TIMEOUT` would also end a connection
    /// whose living peer just doesn't read for a while, as a worker does whose device is busy. So this looks at the
    /// kernel's count of unanswered retransmissions and window probes, which a living peer's kernel resets.
    fn check_peer(&self) -> io::Result<()> {
        let info = tcp_info(self.socket.fd())?;
        if info.tcpi_retransmits.max(info.tcpi_probes) >= RETRANSMISSIONS {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer no longer answers"));
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: true, striping: true, ..Capabilities::default() }
    }

    fn transport(&self) -> &'static str {
        "tcp"
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}

fn tcp_info(fd: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: tcp_info is made of integers only, for which all zeros are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `fd` is open while borrowed; the kernel writes at most `len` bytes, the size of `info`, and the length.
    let result = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len)
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::conformance!(Tcp, "127.0.0.1:0");

    #[test]
    fn a_connection_is_prompt_and_probed() {
        let server = Tcp.listen("127.0.0.1:0").unwrap();
        let client = Tcp.connect(&server.address().unwrap(), Duration::from_secs(20)).unwrap();
        let fd = client.descriptor().unwrap();
        assert!(sockopt::tcp_nodelay(fd).unwrap());
        assert!(sockopt::socket_keepalive(fd).unwrap());
        assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), PROBE_AFTER);
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(client.check_peer().is_ok());
    }

    #[test]
    fn ipv6_works_where_the_host_has_it() {
        let Ok(server) = Tcp.listen("[::1]:0") else { return };
        let address = server.address().unwrap();
        assert!(address.starts_with("[::1]:"), "{address}");
        Tcp.connect(&address, Duration::from_secs(20)).unwrap();
    }

    #[test]
    fn nothing_listening_is_refused_at_once() {
        let free = Tcp.listen("127.0.0.1:0").unwrap().address().unwrap();
        let error = Tcp.connect(&free, Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
