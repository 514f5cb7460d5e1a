//! Connections of clients, and where these are.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;

use outboard_wire::handshake::{Refusal, RefusalCode, VERSION};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;

use super::hellos::{Origin, Seat, machine};
use super::{Supervisor, admit};
use crate::auth::Way;
use crate::sparing::STRANGERS;

/// Where a client is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    Remote(SocketAddr),
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
            Peer::Local { user, .. } => Origin::User(user),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Remote(address) => address.fmt(f),
            Peer::Local { user, .. } => write!(f, "user {user} of this machine"),
        }
    }
}

/// A client's connection, of whatever kind.
pub(super) trait Connection: AsyncRead + AsyncWrite + AsFd + Unpin + 'static {
    /// What this kind of connection proves about the client.
    fn way(&self, peer: Peer) -> Way;

    /// Makes the next flush the last one of this side, without closing the stream below.
    fn finish(&mut self) {}
}

impl Connection for TcpStream {
    fn way(&self, _: Peer) -> Way {
        Way::Plain
    }
}

impl Connection for UnixStream {
    fn way(&self, peer: Peer) -> Way {
        match peer {
            Peer::Local { user, .. } => Way::Local { user },
            Peer::Remote(_) => Way::Plain,
        }
    }
}

/// A client that has just connected.
pub(super) trait Newcomer: 'static {
    /// Writes what fits.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Reads what the client wants, and does it. `seat` is held while the client is at its hello.
    async fn admit(self, supervisor: &Supervisor, peer: Peer, seat: Seat);
}

impl Newcomer for UnixStream {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    async fn admit(self, supervisor: &Supervisor, peer: Peer, seat: Seat) {
        let deadline = Instant::now() + supervisor.config.hello_timeout;
        admit::admit(supervisor, self, peer, seat, deadline).await;
    }
}

/// The answer to a client for which there is no room.
pub(super) fn too_many() -> Refusal {
    let sentence = "the server has too many clients connecting at once; try again".to_owned();
    Refusal { code: RefusalCode::Busy, sentence }
}

/// Looks after one new connection, in a task of its own.
pub(super) fn accept(supervisor: &Rc<Supervisor>, newcomer: impl Newcomer, peer: Peer) {
    let Some(seat) = supervisor.hellos.enter(peer.origin()) else {
        let refusal = too_many();
        supervisor.tally.refused(refusal.code);
        if let Some(left_out) = STRANGERS.admits("no_seat") {
            tracing::warn!(%peer, code = %refusal.error(), left_out, "refused: too many clients are connecting");
        }
        // It fits into the empty socket buffer; if not, nothing waits for it.
        let _ = newcomer.write_now(&refusal.encode(VERSION));
        return;
    };
    let supervisor = Rc::clone(supervisor);
    tokio::task::spawn_local(async move {
        let _coming = supervisor.coming.enter();
        newcomer.admit(&supervisor, peer, seat).await;
    });
}
