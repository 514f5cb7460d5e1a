//! Sockets for collectives: NCCL, in a worker, connects to NCCL in the workers of other servers,
//! and a worker's sandbox has no network.
//!
//! The supervisor makes the sockets, and makes the calls on them that need an address. Each socket
//! belongs to the address at which other servers reach this one; it gets any free port there, and
//! is connected only to servers that `--peers` allows, and only to ports that systems give to
//! sockets that name none; and to sockets of this server's own workers. So a worker finds neither a
//! service of this machine nor of its network, and takes no port that one has.

mod interface;
mod listening;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use outboard_auth::sparing::STRANGERS;
use outboard_control::messages::Interface;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_protocol, socket_type};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, ipproto, listen,
    socket_with,
};
use tokio::sync::Semaphore;

use super::dial::{self, Reach};
use interface::Home;
use listening::Listening;

/// Connections that are being made at once, of all sessions and of one: each has a thread, though
/// only for the time of a call that does not wait.
const MOST: usize = 256;
pub(crate) const MOST_OF_A_SESSION: usize = 16;

/// The lowest port to which a socket is connected, unless this machine gives lower ones to sockets
/// that name none: where Linux begins.
const LOWEST: u16 = 32_768;

/// Where Linux says which ports it gives.
const RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Whether workers make collectives.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Whether they may.
    pub allowed: bool,
    /// The interface at which other servers reach this one; without it, the one that has the
    /// address which they are told.
    pub interface: Option<String>,
}

/// Makes sockets, and makes calls on them.
pub(crate) struct Sockets {
    allowed: bool,
    reach: Reach,
    home: Home,
    lowest: u16,
    room: Semaphore,
    listening: RefCell<Listening>,
}

impl Sockets {
    /// For a server that listens at `listen`.
    pub(crate) fn new(config: &Config, peers: &dial::Config, listen: &str) -> Sockets {
        let text = std::fs::read_to_string(RANGE).unwrap_or_default();
        let first = text.split_whitespace().next().and_then(|first| first.parse().ok());
        Sockets {
            allowed: config.allowed && peers.reach != Reach::Nowhere,
            reach: peers.reach.clone(),
            home: Home::new(config.interface.clone(), &peers.addresses, listen),
            lowest: first.map_or(LOWEST, |first: u16| first.min(LOWEST)).max(1024),
            room: Semaphore::new(MOST),
            listening: RefCell::default(),
        }
    }

    /// The interface at which other servers reach this one; `EACCES` where workers make no
    /// collectives.
    pub(crate) fn interface(&self) -> Result<Interface, Errno> {
        if !self.allowed {
            return Err(Errno::ACCESS);
        }
        self.home.interface().ok_or(Errno::NETUNREACH)
    }

    /// A TCP socket of this server's address. It has no port until it needs one.
    pub(crate) fn make(&self, v6: bool) -> Result<OwnedFd, Errno> {
        let home = self.address()?;
        if home.is_ipv6() != v6 {
            return Err(Errno::AFNOSUPPORT);
        }
        let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Were it not bound, a worker that lets it listen would have a port of every address.
        port_later(socket.as_fd(), true)?;
        bind(&socket, &home)?;
        Ok(socket)
    }

    /// Gives a socket of this server's address a port.
    pub(crate) fn bind(&self, socket: BorrowedFd<'_>, address: &str) -> Result<(), Errno> {
        let home = self.address()?;
        let wanted: SocketAddr = address.parse().map_err(|_| Errno::INVAL)?;
        is_tcp(socket)?;
        if wanted.ip() != home.ip() || wanted.port() != 0 {
            return Err(Errno::ACCESS);
        }
        match SocketAddr::try_from(getsockname(socket)?) {
            Ok(now) if now.port() != 0 => Ok(()),
            _ => {
                port_later(socket, false)?;
                bind(socket, &home)
            }
        }
    }

    /// Has a session's socket of this server's address listen. One that has lost its address, as a
    /// worker could do by itself, would get a port of every address.
    pub(crate) fn listen(
        &self,
        session: u64,
        socket: BorrowedFd<'_>,
        backlog: u32,
    ) -> Result<(), Errno> {
        let home = self.address()?;
        is_tcp(socket)?;
        match SocketAddr::try_from(getsockname(socket)?) {
            Ok(now) if now.ip() == home.ip() => {}
            _ => return Err(Errno::ACCESS),
        }
        listen(socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        if let Ok(now) = SocketAddr::try_from(getsockname(socket)?) {
            self.listening.borrow_mut().add(session, now.port());
        }
        Ok(())
    }

    /// The session has ended, and its sockets with it.
    pub(crate) fn forget(&self, session: u64) {
        self.listening.borrow_mut().forget(session);
    }

    /// Connects a socket that does not wait. Beyond the session's own number at once there is no
    /// connection, and NCCL tries again.
    pub(crate) async fn connect(
        &self,
        socket: OwnedFd,
        address: &str,
        of_session: &Semaphore,
    ) -> Result<(), Errno> {
        let to: SocketAddr = address.parse().map_err(|_| Errno::INVAL)?;
        self.judge(&socket, to)?;
        let full = |_| Errno::CONNREFUSED;
        let _places =
            (of_session.try_acquire().map_err(full)?, self.room.try_acquire().map_err(full)?);
        // A worker that lies could have it wait all the same: nobody else waits with it.
        let connected = tokio::task::spawn_blocking(move || connect(&socket, &to));
        connected.await.unwrap_or(Err(Errno::AGAIN))
    }

    fn judge(&self, socket: &OwnedFd, to: SocketAddr) -> Result<(), Errno> {
        let home = self.address()?;
        is_tcp(socket.as_fd())?;
        let is_own = to.ip() == home.ip() && self.listening.borrow().has(to.port());
        if !is_own && (!self.reach.has(to.ip()) || to.port() < self.lowest) {
            if let Some(left_out) = STRANGERS.admits("collectives") {
                tracing::info!(%to, left_out, "a worker's collectives are not let to an address: `outboard serve --peers NETWORK` names the networks to which they are (127.0.0.0/8 for servers that listen on this machine only)");
            }
            return Err(Errno::ACCESS);
        }
        let waits = !rustix::fs::fcntl_getfl(socket)?.contains(OFlags::NONBLOCK);
        if waits { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// This server's address, with any port.
    fn address(&self) -> Result<SocketAddr, Errno> {
        interface::address(&self.interface()?).ok_or(Errno::NETUNREACH)
    }
}

/// Whether it is a TCP socket: a worker can attach any descriptor.
fn is_tcp(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let domain = socket_domain(socket)?;
    let is_tcp = (domain == AddressFamily::INET || domain == AddressFamily::INET6)
        && socket_type(socket)? == SocketType::STREAM
        && socket_protocol(socket)? == Some(ipproto::TCP);
    if is_tcp { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Whether a socket that is bound to an address gets its port only when it listens or is
/// connected.
fn port_later(socket: BorrowedFd<'_>, later: bool) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let value = libc::c_int::from(later);
    // SAFETY: the option takes a number, which lives until the call returns.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}

#[cfg(test)]
mod tests;
