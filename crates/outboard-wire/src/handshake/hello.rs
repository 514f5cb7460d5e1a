//! What a client says first.

use super::{Extensions, HandshakeError, Preamble, Version, check_versions, message};
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// What a client says first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The client's protocol version.
    pub version: Version,
    /// The client's release, for people.
    pub software: String,
    /// Who is calling, for the server's log: program and process.
    pub client: String,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The process that calls. Since 1.1.
    pub process: Process,
    /// What else it says. Since 1.4.
    pub more: Extensions,
}

/// A client's process, so that the processes of one machine can be listed to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Process {
    /// Its number there; 0 if it is not told.
    pub id: u32,
    /// The same for all processes of a machine that can name each other by their numbers; 0 if it
    /// is not told.
    pub machine: u64,
}

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A new session. This connection carries its commands.
    Session {
        /// Indices of the server's devices to see, in this order; empty for all.
        devices: Vec<u32>,
    },
    /// One more lane of a session, for bulk data.
    Lane {
        /// The session's number, from its [`Welcome`](super::Welcome).
        session: u64,
        /// The session's key, from its [`Welcome`](super::Welcome).
        key: u128,
    },
    /// Only the welcome is wanted, for what it says of the devices.
    Probe,
    /// A session that has sent no command yet is to go on through memory that both sides share,
    /// which this connection, a Unix socket, hands over. Since 1.2.
    Memory {
        /// The session's number, from its [`Welcome`](super::Welcome).
        session: u64,
        /// The session's key, from its [`Welcome`](super::Welcome).
        key: u128,
    },
    /// A session that only asks NVML's questions. Since 1.3.
    Management {
        /// As of a session.
        devices: Vec<u32>,
    },
    /// The commands of a session whose connection was lost go on over this one. What has come of
    /// them, [`Point`](super::resume::Point) says. Since 1.4.
    Resume {
        /// The session's number, from its [`Welcome`](super::Welcome).
        session: u64,
        /// The session's key, from its [`Welcome`](super::Welcome).
        key: u128,
    },
    /// A connection between the workers of two sessions of one client: the bytes of copies from one
    /// server to the other. The calling worker got the ticket from the client. Since 1.4.
    Peer {
        /// The number of the session whose worker is called.
        session: u64,
        /// [`Ticket::key`](super::peers::Ticket::key) of that session for this link.
        key: u128,
    },
    /// A file of the client library that the server hands out, by its name, or what is said of
    /// them. Since 1.5.
    Library {
        /// The name.
        file: String,
    },
}

impl Purpose {
    /// Its number on the wire.
    pub fn number(&self) -> u8 {
        match self {
            Purpose::Session { .. } => 0,
            Purpose::Lane { .. } => 1,
            Purpose::Probe => 2,
            Purpose::Memory { .. } => 3,
            Purpose::Management { .. } => 4,
            Purpose::Resume { .. } => 5,
            Purpose::Peer { .. } => 6,
            Purpose::Library { .. } => 7,
        }
    }

    /// The session that there is already and its key, which shows that the client is its owner's.
    pub fn keyed(&mut self) -> Option<(u64, &mut u128)> {
        match self {
            Purpose::Lane { session, key }
            | Purpose::Memory { session, key }
            | Purpose::Resume { session, key }
            | Purpose::Peer { session, key } => Some((*session, key)),
            Purpose::Session { .. }
            | Purpose::Probe
            | Purpose::Management { .. }
            | Purpose::Library { .. } => None,
        }
    }
}

impl Hello {
    /// The whole message, preamble included.
    pub fn encode(&self) -> Vec<u8> {
        message(self.version, |writer| {
            writer.str(&self.software);
            writer.str(&self.client);
            writer.u8(self.purpose.number());
            match &self.purpose {
                Purpose::Session { devices } | Purpose::Management { devices } => {
                    writer.put(devices)
                }
                Purpose::Lane { session, key }
                | Purpose::Memory { session, key }
                | Purpose::Resume { session, key }
                | Purpose::Peer { session, key } => {
                    writer.u64(*session);
                    writer.u128(*key);
                }
                Purpose::Probe => {}
                Purpose::Library { file } => writer.str(file),
            }
            writer.put(&self.process);
            writer.put(&self.more);
        })
    }

    /// Reads the body that follows `preamble`, on a server of version `own`. Fields that a newer
    /// minor version has appended are skipped.
    ///
    /// # Errors
    /// [`HandshakeError::ClientTooOld`] or [`HandshakeError::ServerTooOld`] if the versions differ;
    /// a [`DecodeError`] for a malformed body.
    pub fn decode(preamble: &Preamble, body: &[u8], own: Version) -> Result<Hello, HandshakeError> {
        check_versions(preamble.version, own)?;
        let mut reader = Reader::new(body);
        let software = name(reader.get()?);
        let client = name(reader.get()?);
        let purpose = match reader.u8()? {
            0 => Purpose::Session { devices: reader.get()? },
            1 => Purpose::Lane { session: reader.u64()?, key: reader.u128()? },
            2 => Purpose::Probe,
            3 => Purpose::Memory { session: reader.u64()?, key: reader.u128()? },
            4 => Purpose::Management { devices: reader.get()? },
            5 => Purpose::Resume { session: reader.u64()?, key: reader.u128()? },
            6 => Purpose::Peer { session: reader.u64()?, key: reader.u128()? },
            7 => Purpose::Library { file: reader.get()? },
            value => {
                return Err(DecodeError::Invalid {
                    what: "purpose of a connection",
                    value: value.into(),
                }
                .into());
            }
        };
        let process = if reader.remaining() == 0 { Process::default() } else { reader.get()? };
        let more = if reader.remaining() == 0 { Extensions::default() } else { reader.get()? };
        Ok(Hello { version: preamble.version, software, client, purpose, process, more })
    }
}

/// What is left of a name that a stranger gives itself, in characters.
const LONGEST_NAME: usize = 128;

/// A name as logs and terminals can take it: no longer than need be, and without characters that
/// control what shows it.
fn name(name: &str) -> String {
    crate::plain(name).chars().take(LONGEST_NAME).collect()
}

impl Encode for Process {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.id);
        writer.u64(self.machine);
    }
}

impl<'a> Decode<'a> for Process {
    fn decode(reader: &mut Reader<'a>) -> Result<Process, DecodeError> {
        Ok(Process { id: reader.u32()?, machine: reader.u64()? })
    }
}
