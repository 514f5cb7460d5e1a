//! Connections of clients, and where these are.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use outboard_wire::handshake::{Refusal, RefusalCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::auth::Way;
use crate::bytes_only::BytesOnly;
use crate::vsock::Guest;
use outboard_auth::hellos::{Origin, machine};

/// Where a client is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    Remote(SocketAddr),
    /// In a virtual machine.
    Guest(Guest),
    /// On this machine, and whether its user may be here.
    Local {
        user: u32,
        admitted: bool,
    },
}

impl Peer {
    pub(super) fn origin(self) -> Origin {
        match self {
            Peer::Remote(address) => Origin::Machine(machine(address.ip())),
            Peer::Guest(Guest::Numbered(address)) => Origin::Guest(address.cid),
            Peer::Guest(Guest::Of { hypervisor }) => Origin::Hypervisor(hypervisor),
            Peer::Local { user, .. } => Origin::User(user),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Remote(address) => address.fmt(f),
            Peer::Guest(guest) => guest.fmt(f),
            Peer::Local { user, .. } => write!(f, "user {user} of this machine"),
        }
    }
}

/// A client's connection, of whatever kind.
pub(super) trait Connection: AsyncRead + AsyncWrite + AsFd + Unpin + 'static {
    /// What this kind of connection proves about the client.
    fn way(&self, peer: Peer) -> Way;

    /// The connection, for the worker that goes on with it.
    fn for_a_worker(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    /// Makes the next flush the last one of this side, without closing the stream below.
    fn finish(&mut self) {}
}

impl Connection for TcpStream {
    fn way(&self, _: Peer) -> Way {
        Way::Plain
    }
}

impl Connection for BytesOnly {
    fn for_a_worker(&self) -> BorrowedFd<'_> {
        BytesOnly::for_a_worker(self)
    }

    fn way(&self, peer: Peer) -> Way {
        match peer {
            Peer::Local { user, .. } => Way::Local { user },
            Peer::Remote(_) | Peer::Guest(_) => Way::Plain,
        }
    }
}

/// The answer to a client for which there is no room.
pub(super) fn too_many() -> Refusal {
    let sentence = "the server has too many clients connecting at once; try again".to_owned();
    Refusal { code: RefusalCode::Busy, sentence }
}
