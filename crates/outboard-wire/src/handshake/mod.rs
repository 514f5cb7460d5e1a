//! The first messages of every connection: the client's [`Hello`], the server's [`Welcome`] or [`Refusal`].
//!
//! All start with the same [`Preamble`], whose layout never changes, and a refusal's body never changes either: so
//! any two versions can at least tell each other why they don't get along.

pub mod auth;
mod extensions;
mod refusal;
pub mod resume;
pub mod sharing;
mod trace;

pub use extensions::{Extensions, Kind};
pub use refusal::{Refusal, RefusalCode};
pub use trace::{TRACE, TraceParent};

use crate::code::Code;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::limits;

/// First bytes of either side.
pub const MAGIC: [u8; 8] = *b"OUTBOARD";

/// This program's protocol version.
pub const VERSION: Version = Version { major: 1, minor: 4 };

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
    /// The same for all processes of a machine that can name each other by their numbers; 0 if it is not told.
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
        /// The session's number, from its [`Welcome`].
        session: u64,
        /// The session's key, from its [`Welcome`].
        key: u128,
    },
    /// Only the welcome is wanted, for what it says of the devices.
    Probe,
    /// A session that has sent no command yet is to go on through memory that both sides share, which this connection, a Unix socket, hands over.
    /// Since 1.2.
    Memory {
        /// The session's number, from its [`Welcome`].
        session: u64,
        /// The session's key, from its [`Welcome`].
        key: u128,
    },
    /// A session that only asks NVML's questions. Since 1.3.
    Management {
        /// As of a session.
        devices: Vec<u32>,
    },
    /// The commands of a session whose connection was lost go on over this one. What has come of them, [`resume::Point`] says. Since 1.4.
    Resume {
        /// The session's number, from its [`Welcome`].
        session: u64,
        /// The session's key, from its [`Welcome`].
        key: u128,
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
        }
    }

    /// The session that there is already and its key, which shows that the client is its owner's.
    pub fn keyed(&mut self) -> Option<(u64, &mut u128)> {
        match self {
            Purpose::Lane { session, key } | Purpose::Memory { session, key } | Purpose::Resume { session, key } => {
                Some((*session, key))
            }
            Purpose::Session { .. } | Purpose::Probe | Purpose::Management { .. } => None,
        }
    }
}

/// Where clients on the server's own machine find it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Local {
    /// The machine: the same number there and nowhere else; 0 if it cannot be told.
    pub host: u64,
    /// The user that the server runs as.
    pub user: u32,
    /// Path of its Unix socket.
    pub path: String,
}

/// The server accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Welcome {
    /// The server's protocol version.
    pub version: Version,
    /// The server's release, for people.
    pub software: String,
    /// The session's number.
    pub session: u64,
    /// What a lane shows to join the session. Secret.
    pub key: u128,
    /// How many bulk lanes the server suggests.
    pub lanes: u32,
    /// What the client needs to know of the platform to answer questions locally; opaque here.
    pub snapshot: Vec<u8>,
    /// How a client on the same machine reaches the server without the network. Since 1.2.
    pub local: Option<Local>,
    /// What else it says. Since 1.4.
    pub more: Extensions,
}

/// The server's answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It accepts.
    Welcome(Welcome),
    /// It declines.
    Refusal(Refusal),
    /// It will answer later; other answers follow. Since 1.4, and only to clients that speak it.
    Waiting(Waiting),
    /// It accepts, and somebody else goes on, over a connection that is encrypted anew; another answer follows there. Only over TLS.
    Secure(auth::Secure),
}

/// A client that has to wait before it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// How many are served before it, itself included: 1 is next.
    pub place: u32,
    /// What it waits for: a sentence.
    pub sentence: String,
}

/// Why a handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The other side speaks something else.
    #[error("the other side does not speak Outboard's protocol")]
    NotOutboard,
    /// The client must be updated.
    #[error("the client is too old: it speaks protocol {client}, the server {server}; update the client")]
    ClientTooOld {
        /// The client's version.
        client: Version,
        /// The server's version.
        server: Version,
    },
    /// The server must be updated.
    #[error("the server is too old: it speaks protocol {server}, the client {client}; update the server")]
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

/// Whether a client and a server of these versions understand each other; the error names the older side.
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

impl Hello {
    /// The whole message, preamble included.
    pub fn encode(&self) -> Vec<u8> {
        message(self.version, |writer| {
            writer.str(&self.software);
            writer.str(&self.client);
            writer.u8(self.purpose.number());
            match &self.purpose {
                Purpose::Session { devices } | Purpose::Management { devices } => writer.put(devices),
                Purpose::Lane { session, key }
                | Purpose::Memory { session, key }
                | Purpose::Resume { session, key } => {
                    writer.u64(*session);
                    writer.u128(*key);
                }
                Purpose::Probe => {}
            }
            writer.put(&self.process);
            writer.put(&self.more);
        })
    }

    /// Reads the body that follows `preamble`, on a server of version `own`. Fields that a newer minor version has
    /// appended are skipped.
    pub fn decode(preamble: &Preamble, body: &[u8], own: Version) -> Result<Hello, HandshakeError> {
        check_versions(preamble.version, own)?;
        let mut reader = Reader::new(body);
        let software = plain(reader.get()?);
        let client = plain(reader.get()?);
        let purpose = match reader.u8()? {
            0 => Purpose::Session { devices: reader.get()? },
            1 => Purpose::Lane { session: reader.u64()?, key: reader.u128()? },
            2 => Purpose::Probe,
            3 => Purpose::Memory { session: reader.u64()?, key: reader.u128()? },
            4 => Purpose::Management { devices: reader.get()? },
            5 => Purpose::Resume { session: reader.u64()?, key: reader.u128()? },
            value => return Err(DecodeError::Invalid { what: "purpose of a connection", value: value.into() }.into()),
        };
        let process = if reader.remaining() == 0 { Process::default() } else { reader.get()? };
        let more = if reader.remaining() == 0 { Extensions::default() } else { reader.get()? };
        Ok(Hello { version: preamble.version, software, client, purpose, process, more })
    }
}

/// What is left of a name that a stranger gives itself, in characters.
const LONGEST_NAME: usize = 128;

/// A name as logs and terminals can take it: no longer than need be, and without characters that control what shows it.
fn plain(name: &str) -> String {
    let shown = |letter: char| {
        let turns =
            matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if letter.is_control() || turns { '?' } else { letter }
    };
    name.chars().take(LONGEST_NAME).map(shown).collect()
}

impl Encode for Process {
    fn encode(&self, writer: &mut Writer) {
        writer.u32(self.id);
        writer.u64(self.machine);
    }
}

impl Encode for Local {
    fn encode(&self, writer: &mut Writer) {
        writer.u64(self.host);
        writer.u32(self.user);
        writer.str(&self.path);
    }
}

impl<'a> Decode<'a> for Local {
    fn decode(reader: &mut Reader<'a>) -> Result<Local, DecodeError> {
        Ok(Local { host: reader.u64()?, user: reader.u32()?, path: reader.get()? })
    }
}

impl<'a> Decode<'a> for Process {
    fn decode(reader: &mut Reader<'a>) -> Result<Process, DecodeError> {
        Ok(Process { id: reader.u32()?, machine: reader.u64()? })
    }
}

const WELCOME: u8 = 1;
const REFUSAL: u8 = 2;
const WAITING: u8 = 3;

impl Waiting {
    /// The whole message, preamble included.
    pub fn encode(&self, own: Version) -> Vec<u8> {
        message(own, |writer| {
            writer.u8(WAITING);
            writer.u32(self.place);
            writer.str(&self.sentence);
        })
    }
}

impl Welcome {
    /// The whole message, preamble included.
    pub fn encode(&self) -> Vec<u8> {
        message(self.version, |writer| {
            writer.u8(WELCOME);
            writer.str(&self.software);
            writer.u64(self.session);
            writer.u128(self.key);
            writer.u32(self.lanes);
            writer.bytes(&self.snapshot);
            writer.put(&self.local);
            writer.put(&self.more);
        })
    }
}

impl Answer {
    /// Reads the body that follows `preamble`, on a client of version `own`. A refusal is understood from a server
    /// of any version.
    pub fn decode(preamble: &Preamble, body: &[u8], own: Version) -> Result<Answer, HandshakeError> {
        let mut reader = Reader::new(body);
        let kind = reader.u8()?;
        if kind == REFUSAL {
            let code = RefusalCode::from_number(reader.u16()?);
            return Ok(Answer::Refusal(Refusal { code, sentence: reader.get()? }));
        }
        check_versions(own, preamble.version)?;
        if kind == WAITING {
            return Ok(Answer::Waiting(Waiting { place: reader.u32()?, sentence: reader.get()? }));
        }
        if kind == auth::SECURE {
            return Ok(auth::Secure::decode(&mut reader)?);
        }
        if kind != WELCOME {
            return Err(DecodeError::Invalid { what: "answer to a hello", value: kind.into() }.into());
        }
        let mut welcome = Welcome {
            version: preamble.version,
            software: reader.get()?,
            session: reader.u64()?,
            key: reader.u128()?,
            lanes: reader.u32()?,
            snapshot: reader.bytes()?.to_vec(),
            local: None,
            more: Extensions::default(),
        };
        if reader.remaining() > 0 {
            welcome.local = reader.get()?;
        }
        if reader.remaining() > 0 {
            welcome.more = reader.get()?;
        }
        Ok(Answer::Welcome(welcome))
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
