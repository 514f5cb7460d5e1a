//! The first messages of every connection: the client's [`Hello`], the server's [`Welcome`] or
//! [`Refusal`].
//!
//! All start with the same [`Preamble`], whose layout never changes, and a refusal's body never
//! changes either: so any two versions can at least tell each other why they don't get along.

mod answer;
pub mod arena;
pub mod auth;
pub mod beats;
mod extensions;
pub mod files;
mod hello;
pub mod ivshmem;
pub mod lease;
pub mod peers;
pub mod queued;
pub mod rdma;
mod refusal;
pub mod resume;
pub mod sharing;
mod trace;
pub mod who;
pub mod windows;

pub use answer::{Answer, Local, Waiting, Welcome, file};
pub use extensions::{Extensions, Kind};
pub use hello::{Hello, Process, Purpose};
pub use refusal::{Refusal, RefusalCode};
pub use trace::{TRACE, TraceParent};

use crate::code::Code;
use crate::codec::{DecodeError, Reader, Writer};
use crate::limits;
use crate::messages::{MAJOR, MINOR};

/// First bytes of either side.
pub const MAGIC: [u8; 8] = *b"OUTBOARD";

/// This program's protocol version.
pub const VERSION: Version = Version { major: MAJOR, minor: MINOR };

/// A protocol version. Different majors don't understand each other; minors only add.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Changes when old messages change meaning.
    pub major: u16,
    /// Changes when something is added.
    pub minor: u16,
}

/// The fixed start of a handshake message: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// The sender's version.
    pub version: Version,
    /// Bytes of body that follow.
    pub len: u32,
}

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The other side speaks something else.
    #[error("the other side does not speak Outboard's protocol")]
    NotOutboard,
    /// The client must be updated.
    #[error(
        "the client is too old: it speaks protocol {client}, the server {server}; update the client"
    )]
    ClientTooOld {
        /// The client's version.
        client: Version,
        /// The server's version.
        server: Version,
    },
    /// The server must be updated.
    #[error(
        "the server is too old: it speaks protocol {server}, the client {client}; update the server"
    )]
    ServerTooOld {
        /// The client's version.
        client: Version,
        /// The server's version.
        server: Version,
    },
    /// The message's length is out of bounds.
    #[error("a handshake message of {len} bytes exceeds the limit of {limit}")]
    TooLong {
        /// Its length.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// The body could not be decoded.
    #[error("the handshake message is malformed: {0}")]
    Malformed(#[from] DecodeError),
}

impl HandshakeError {
    /// Its error code.
    pub fn code(&self) -> Code {
        match self {
            HandshakeError::NotOutboard => Code::NotOutboard,
            HandshakeError::ClientTooOld { .. } => Code::ClientTooOld,
            HandshakeError::ServerTooOld { .. } => Code::ServerTooOld,
            HandshakeError::TooLong { .. } | HandshakeError::Malformed(_) => Code::BadHello,
        }
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Whether a client and a server of these versions understand each other; the error names the older
/// side.
///
/// # Errors
/// [`HandshakeError::ClientTooOld`] or [`HandshakeError::ServerTooOld`] if the major versions
/// differ.
pub fn check_versions(client: Version, server: Version) -> Result<(), HandshakeError> {
    match client.major.cmp(&server.major) {
        core::cmp::Ordering::Equal => Ok(()),
        core::cmp::Ordering::Less => Err(HandshakeError::ClientTooOld { client, server }),
        core::cmp::Ordering::Greater => Err(HandshakeError::ServerTooOld { client, server }),
    }
}

impl Preamble {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 16;

    /// Reads a preamble; `limit` is the largest body accepted.
    ///
    /// # Errors
    /// [`HandshakeError::NotOutboard`] without our magic bytes, [`HandshakeError::TooLong`] for a
    /// body above `limit`.
    pub fn decode(bytes: &[u8; Self::SIZE], limit: usize) -> Result<Preamble, HandshakeError> {
        let mut reader = Reader::new(bytes);
        if reader.array::<8>()? != MAGIC {
            return Err(HandshakeError::NotOutboard);
        }
        let version = Version { major: reader.u16()?, minor: reader.u16()? };
        let len = reader.u32()?;
        if len as usize > limit {
            return Err(HandshakeError::TooLong { len: len as usize, limit });
        }
        Ok(Preamble { version, len })
    }
}

/// Upper bound for the body of a hello, in bytes.
pub const HELLO_LIMIT: usize = limits::MAX_HELLO;
/// Upper bound for the body of an answer, in bytes.
pub const ANSWER_LIMIT: usize = limits::MAX_WELCOME;

fn message(version: Version, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::with_capacity(256);
    writer.fixed(&MAGIC);
    writer.u16(version.major);
    writer.u16(version.minor);
    writer.u32(0);
    body(&mut writer);
    let len = writer.len() - Preamble::SIZE;
    writer.patch_u32(12, u32::try_from(len).expect("handshake messages are below 4 GiB"));
    writer.into_vec()
}

#[cfg(test)]
mod tests;
