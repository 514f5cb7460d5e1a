//! What another server's worker must know to connect to a session's worker.

use outboard_transport::tls;
use outboard_wire::handshake::peers::{PEERS, Peers, SHARING, Sharing, Ticket};
use outboard_wire::handshake::{Local, Welcome};

use super::ConnectError;
use super::again::part;
use super::connect::Secured;

/// A session that workers of other servers may connect to.
pub struct Introduction {
    session: u64,
    key: u128,
    fingerprint: Option<[u8; 32]>,
    addresses: Vec<String>,
    /// The server's Unix socket, if its workers share memory with those of servers that come there.
    socket: Option<Local>,
}

impl std::fmt::Debug for Introduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Introduction").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Introduction {
    /// As the welcome says; `None` if the server links its workers to no others.
    pub(super) fn of(
        welcome: &Welcome,
        secured: Option<&Secured>,
        address: &str,
    ) -> Result<Option<Introduction>, ConnectError> {
        let peers: Option<Peers> = part(welcome, PEERS, address)?;
        let sharing: Option<Sharing> = part(welcome, SHARING, address)?;
        let socket = welcome.local.clone().filter(|local| sharing.is_some() && local.host != 0);
        Ok(peers.map(|Peers { addresses }| Introduction {
            session: welcome.session,
            key: welcome.key,
            fingerprint: secured.map(|secured| secured.fingerprint().0),
            addresses,
            socket,
        }))
    }

    /// The session's number.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// SHA-256 of the session's certificate, if its connections are encrypted.
    pub fn fingerprint(&self) -> Option<[u8; 32]> {
        self.fingerprint
    }

    /// Where other servers reach this one, if it says so.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// The server's Unix socket, if its workers share memory with those of servers that come there.
    pub fn socket(&self) -> Option<&Local> {
        self.socket.as_ref()
    }

    /// The socket of `other` by which this one's worker may share memory with the other one's: both
    /// are on one machine.
    pub fn socket_of<'a>(&self, other: &'a Introduction) -> Option<&'a Local> {
        let (own, theirs) = (self.socket.as_ref()?, other.socket.as_ref()?);
        (own.host == theirs.host).then_some(theirs)
    }

    /// The ticket for a link.
    pub fn ticket(&self, link: u32) -> Ticket {
        tls::ticket(self.key, self.session, link)
    }
}
