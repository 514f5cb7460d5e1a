//! Links between the workers of one client's sessions.
//!
//! The client introduces two workers: it gives the one a ticket for the other's session. A ticket
//! is made from that session's key, so the called server recognises it without being told before;
//! the worker that has it cannot compute the key.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::record;

/// The kind of these parts: [`Peers`] in the welcome of a session, [`Called`] in the hello of a
/// connection with [`Purpose::Peer`](super::Purpose::Peer).
pub const PEERS: Kind = Kind(11);

/// The kind of this part of the welcome of a session: [`Sharing`].
pub const SHARING: Kind = Kind(13);

/// The session's worker shares memory with one of another server that comes by the server's Unix
/// socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing;

impl Encode for Sharing {
    fn encode(&self, _writer: &mut Writer) {}
}

impl<'a> Decode<'a> for Sharing {
    fn decode(_reader: &mut Reader<'a>) -> Result<Sharing, DecodeError> {
        Ok(Sharing)
    }
}

/// The server connects its workers to those of other servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// Where other servers reach this one, `HOST:PORT`; none: where the client does.
    pub addresses: Vec<String>,
}

/// A link with this bit in its number carries messages between the sessions of two clients, all in
/// the direction in which it was made. The client that sends makes the numbers of what it carries,
/// and the other one names them in any order.
pub const MESSAGES: u32 = 1 << 31;

/// What a client tells another one, whose worker is to call its session's, beside a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// The session's number.
    pub session: u64,
    /// Where other servers reach this one, `HOST:PORT`; at least one.
    pub addresses: Vec<String>,
    /// SHA-256 of the session's certificate; empty if its connections are not encrypted.
    pub fingerprint: Vec<u8>,
    /// The server's Unix socket, if its worker may share memory with one that comes there: the
    /// machine (0: it may not), the server's user and the path.
    pub host: u64,
    /// See [`host`](Whereabouts::host).
    pub user: u32,
    /// See [`host`](Whereabouts::host).
    pub socket: String,
}

/// Which link of the called session a connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The link's number. The client numbers the links of a session.
    pub link: u32,
}

/// The right to connect to a session's worker for one of its links.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// Shown as a session's key would be.
    pub key: u128,
}

impl Ticket {
    /// What the ticket is a keyed hash of, with the session's key.
    pub fn hashed(session: u64, link: u32) -> Vec<u8> {
        let mut writer = Writer::with_capacity(64);
        writer.fixed(b"outboard: may call a session's worker ");
        writer.u64(session);
        writer.u32(link);
        writer.into_vec()
    }

    /// The ticket, from that hash.
    pub fn of(hash: &[u8; 32]) -> Ticket {
        let mut key = [0; 16];
        key.copy_from_slice(&hash[..16]);
        Ticket { key: u128::from_le_bytes(key) }
    }
}

/// Nobody finds a ticket in a log.
impl core::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Ticket(..)")
    }
}

record!(Peers { addresses });
record!(Called { link });
record!(Whereabouts { session, addresses, fingerprint, host, user, socket });
