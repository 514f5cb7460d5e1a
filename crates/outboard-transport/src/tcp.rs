//! TCP.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::address::Address;
use crate::descriptor::{Socket, over_a_socket};
use crate::stream::{Capabilities, Stream};
use crate::transport::{Listener, Transport};

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

/// The time without an answer after which a peer counts as gone, unless this process sets another.
pub const USUAL_KEEPALIVE: Duration = Duration::from_secs(15);

/// Seconds after which a silent peer is gone.
static KEEPALIVE: AtomicU32 = AtomicU32::new(USUAL_KEEPALIVE.as_secs() as u32);

/// The environment variable that sets that time, in seconds.
pub const KEEPALIVE_VARIABLE: &str = "OUTBOARD_KEEPALIVE";

/// Sets the time without an answer after which this process's connections count a peer as gone: at
/// least 3 seconds, at most an hour.
pub fn set_keepalive(time: Duration) {
    KEEPALIVE.store(time.as_secs().clamp(3, 3600) as u32, Ordering::Relaxed);
}

/// The time without an answer after which a peer counts as gone.
pub fn keepalive() -> Duration {
    Duration::from_secs(KEEPALIVE.load(Ordering::Relaxed).into())
}

/// As [`set_keepalive`], if the environment says so.
pub fn keepalive_from_env() {
    let set = std::env::var(KEEPALIVE_VARIABLE).ok().and_then(|text| text.trim().parse().ok());
    if let Some(seconds) = set {
        set_keepalive(Duration::from_secs(seconds));
    }
}

/// How idle connections are probed: after how many seconds first, then at which interval, how many
/// times. Together they make up that time.
fn probes() -> (Duration, Duration, u32) {
    let seconds = KEEPALIVE.load(Ordering::Relaxed);
    let interval = (seconds / 5).max(1);
    let after = seconds.saturating_sub(3 * interval).max(1);
    let count = (seconds - after).div_ceil(interval).max(1);
    (Duration::from_secs(after.into()), Duration::from_secs(interval.into()), count)
}

/// Retransmissions without an answer after which a peer counts as gone. Each waits twice as long as
/// the one before, the first 200 ms in a local network: six of them take 12.6 seconds, and waiting
/// threads check every two.
fn retransmissions() -> u8 {
    let milliseconds = u64::from(KEEPALIVE.load(Ordering::Relaxed)) * 1000;
    (1..15).take_while(|count| 200 * ((1 << count) - 1) < milliseconds).last().unwrap_or(3).max(3)
}

impl Transport for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let deadline = Instant::now() + timeout;
        let mut last =
            io::Error::new(io::ErrorKind::NotFound, format!("`{address}` has no address"));
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
///
/// # Errors
/// The system's error if the socket takes no such options.
pub fn from_descriptor(fd: OwnedFd) -> io::Result<Arc<dyn Stream>> {
    sockopt::set_tcp_nodelay(&fd, true)?;
    sockopt::set_socket_keepalive(&fd, true)?;
    let (after, interval, count) = probes();
    sockopt::set_tcp_keepidle(&fd, after)?;
    sockopt::set_tcp_keepintvl(&fd, interval)?;
    sockopt::set_tcp_keepcnt(&fd, count)?;
    let peer = match rustix::net::getpeername(&fd) {
        Ok(Some(address)) => {
            SocketAddr::try_from(address).map_or_else(|_| "unknown".to_owned(), |a| a.to_string())
        }
        _ => "unknown".to_owned(),
    };
    Ok(Arc::new(TcpConnection { socket: Socket::new(fd)?, peer }))
}

/// The numeric addresses of a server. A name without any is `NotFound`.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if it is no address, [`io::ErrorKind::NotFound`] for an unknown
/// name, or the system's error.
pub fn resolve(address: &str) -> io::Result<impl Iterator<Item = SocketAddr> + use<>> {
    let address: Address =
        address.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    (address.host.as_str(), address.port).to_socket_addrs().map_err(|error| {
        match error.raw_os_error() {
            Some(_) => error,
            None => io::Error::new(io::ErrorKind::NotFound, error),
        }
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

    /// The kernel sends no keepalive probes while bytes are unacknowledged, and `TCP_USER_TIMEOUT`
    /// would also end a connection to a living peer that does not read for a while, such as a
    /// worker whose device is busy. This reads the kernel's count of unanswered retransmissions and
    /// window probes instead, which a living peer's kernel resets.
    fn check_peer(&self) -> io::Result<()> {
        let info = tcp_info(self.socket.fd())?;
        if info.tcpi_retransmits.max(info.tcpi_probes) >= retransmissions() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer no longer answers"));
        }
        Ok(())
    }

    fn is_unanswered(&self) -> bool {
        tcp_info(self.socket.fd()).is_ok_and(|info| info.tcpi_unacked > 0 || info.tcpi_probes > 0)
    }

    fn error(&self) -> Option<io::Error> {
        sockopt::socket_error(self.socket.fd()).ok()?.err().map(io::Error::from)
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
    // SAFETY: `fd` is open while borrowed; the kernel writes at most `len` bytes, the size of
    // `info`, and the length.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut len,
        )
    };
    if result == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_test_support::skip;

    crate::conformance!(Tcp, "127.0.0.1:0");

    #[test]
    fn a_connection_is_prompt_and_probed() {
        let server = Tcp.listen("127.0.0.1:0").unwrap();
        let client = Tcp.connect(&server.address().unwrap(), Duration::from_secs(20)).unwrap();
        let fd = client.descriptor().unwrap();
        assert!(sockopt::tcp_nodelay(fd).unwrap());
        assert!(sockopt::socket_keepalive(fd).unwrap());
        assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), probes().0);
        assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert!(client.check_peer().is_ok());
    }

    #[test]
    fn an_idle_peer_is_probed_within_the_time() {
        let (after, interval, count) = probes();
        assert_eq!(after + interval * count, USUAL_KEEPALIVE);
        assert_eq!(retransmissions(), 6);
        assert!(200 * ((1 << retransmissions()) - 1) < USUAL_KEEPALIVE.as_millis());
    }

    #[test]
    fn ipv6_works_where_the_host_has_it() {
        let Ok(server) = Tcp.listen("[::1]:0") else { skip!("this host has no IPv6") };
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
