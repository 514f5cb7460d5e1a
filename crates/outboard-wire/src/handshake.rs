//! The first messages of every connection: the client's [`Hello`], the server's [`Welcome`] or [`Refusal`].
//!
//! All start with the same [`Preamble`], whose layout never changes, and a refusal's body never changes either: so
//! any two versions can at least tell each other why they don't get along.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::limits;

/// First bytes of either side.
pub const MAGIC: [u8; 8] = *b"OUTBOARD";

/// This program's protocol version.
pub const VERSION: Version = Version { major: 1, minor: 3 };

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
}

/// The server declines, and closes the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for programs.
    pub code: RefusalCode,
    /// The reason, for people: a sentence.
    pub sentence: String,
}

/// Reasons to refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    /// The client's protocol is too old for the server.
    ClientTooOld,
    /// The server's protocol is too old for the client.
    ServerTooOld,
    /// The hello made no sense.
    BadHello,
    /// No such session, or the wrong key.
    NoSession,
    /// The server has no device, or not those asked for.
    NoDevice,
    /// The server is at a limit.
    Busy,
    /// The worker process failed to start.
    WorkerFailed,
    /// The server is stopping.
    Stopping,
    /// The client's user may not do this.
    NotAllowed,
    /// A reason that this program does not know.
    Other(u16),
}

/// The server's answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It accepts.
    Welcome(Welcome),
    /// It declines.
    Refusal(Refusal),
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
            match &self.purpose {
                Purpose::Session { devices } => {
                    writer.u8(0);
                    writer.put(devices);
                }
                Purpose::Lane { session, key } => {
                    writer.u8(1);
                    writer.u64(*session);
                    writer.u128(*key);
                }
                Purpose::Probe => writer.u8(2),
                Purpose::Management { devices } => {
                    writer.u8(4);
                    writer.put(devices);
                }
                Purpose::Memory { session, key } => {
                    writer.u8(3);
                    writer.u64(*session);
                    writer.u128(*key);
                }
            }
            writer.put(&self.process);
        })
    }

    /// Reads the body that follows `preamble`, on a server of version `own`. Fields that a newer minor version has
    /// appended are skipped.
    pub fn decode(preamble: &Preamble, body: &[u8], own: Version) -> Result<Hello, HandshakeError> {
        check_versions(preamble.version, own)?;
        let mut reader = Reader::new(body);
        let software = reader.get()?;
        let client = reader.get()?;
        let purpose = match reader.u8()? {
            0 => Purpose::Session { devices: reader.get()? },
            1 => Purpose::Lane { session: reader.u64()?, key: reader.u128()? },
            2 => Purpose::Probe,
            3 => Purpose::Memory { session: reader.u64()?, key: reader.u128()? },
            4 => Purpose::Management { devices: reader.get()? },
            value => return Err(DecodeError::Invalid { what: "purpose of a connection", value: value.into() }.into()),
        };
        let process = if reader.remaining() == 0 { Process::default() } else { reader.get()? };
        Ok(Hello { version: preamble.version, software, client, purpose, process })
    }
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
        })
    }
}

impl Refusal {
    /// The whole message, preamble included. `own` is the server's version.
    pub fn encode(&self, own: Version) -> Vec<u8> {
        message(own, |writer| {
            writer.u8(REFUSAL);
            writer.u16(self.code.number());
            writer.str(&self.sentence);
        })
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.sentence)
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
        };
        if reader.remaining() > 0 {
            welcome.local = reader.get()?;
        }
        Ok(Answer::Welcome(welcome))
    }
}

impl RefusalCode {
    const KNOWN: [(RefusalCode, u16); 9] = [
        (RefusalCode::ClientTooOld, 1),
        (RefusalCode::ServerTooOld, 2),
        (RefusalCode::BadHello, 3),
        (RefusalCode::NoSession, 4),
        (RefusalCode::NoDevice, 5),
        (RefusalCode::Busy, 6),
        (RefusalCode::WorkerFailed, 7),
        (RefusalCode::Stopping, 8),
        (RefusalCode::NotAllowed, 9),
    ];

    /// The code's number on the wire.
    pub fn number(self) -> u16 {
        match self {
            RefusalCode::Other(number) => number,
            known => Self::KNOWN.iter().find(|(code, _)| *code == known).map_or(0, |(_, number)| *number),
        }
    }

    /// The code with this number on the wire.
    pub fn from_number(number: u16) -> RefusalCode {
        Self::KNOWN.iter().find(|(_, n)| *n == number).map_or(RefusalCode::Other(number), |(code, _)| *code)
    }
}

impl From<&HandshakeError> for Refusal {
    /// What a server answers to a hello that failed this way.
    fn from(error: &HandshakeError) -> Refusal {
        let code = match error {
            HandshakeError::ClientTooOld { .. } => RefusalCode::ClientTooOld,
            HandshakeError::ServerTooOld { .. } => RefusalCode::ServerTooOld,
            _ => RefusalCode::BadHello,
        };
        Refusal { code, sentence: error.to_string() }
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(message: &[u8], limit: usize) -> (Preamble, &[u8]) {
        let (head, body) = message.split_first_chunk::<{ Preamble::SIZE }>().unwrap();
        let preamble = Preamble::decode(head, limit).unwrap();
        assert_eq!(preamble.len as usize, body.len());
        (preamble, body)
    }

    fn hello(version: Version, purpose: Purpose) -> Hello {
        Hello {
            version,
            software: "0.1.0".into(),
            client: "python3 (process 7)".into(),
            purpose,
            process: Process { id: 7, machine: 8 },
        }
    }

    #[test]
    fn messages_round_trip() {
        for purpose in [
            Purpose::Session { devices: vec![1, 0] },
            Purpose::Lane { session: 9, key: u128::MAX - 1 },
            Purpose::Probe,
            Purpose::Memory { session: 1, key: 2 },
            Purpose::Management { devices: vec![2] },
        ] {
            let sent = hello(VERSION, purpose);
            let bytes = sent.encode();
            let (preamble, body) = split(&bytes, HELLO_LIMIT);
            assert_eq!(Hello::decode(&preamble, body, VERSION), Ok(sent));
        }
        let sent = Welcome {
            version: VERSION,
            software: "0.1.0".into(),
            session: 3,
            key: 4,
            lanes: 4,
            snapshot: vec![1, 2, 3],
            local: Some(Local { host: 5, user: 6, path: "/run/outboard/9470.sock".into() }),
        };
        let bytes = sent.encode();
        let (preamble, body) = split(&bytes, ANSWER_LIMIT);
        assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Welcome(sent.clone())));
        let sent = Welcome { local: None, ..sent };
        let bytes = sent.encode();
        let (preamble, body) = split(&bytes, ANSWER_LIMIT);
        assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Welcome(sent.clone())));
        let before = &body[..body.len() - 1];
        assert_eq!(
            Answer::decode(&preamble, before, VERSION),
            Ok(Answer::Welcome(sent)),
            "a server of before tells no socket"
        );
    }

    #[test]
    fn every_refusal_code_has_its_own_number() {
        for (code, number) in RefusalCode::KNOWN {
            assert_eq!(code.number(), number);
            assert_eq!(RefusalCode::from_number(number), code);
        }
        assert_eq!(RefusalCode::from_number(999), RefusalCode::Other(999));
    }

    #[test]
    fn the_older_side_is_named() {
        let old = Version { major: 1, minor: 5 };
        let new = Version { major: 2, minor: 0 };
        let bytes = hello(old, Purpose::Probe).encode();
        let (preamble, body) = split(&bytes, HELLO_LIMIT);
        let error = Hello::decode(&preamble, body, new).unwrap_err();
        assert_eq!(error, HandshakeError::ClientTooOld { client: old, server: new });
        assert!(error.to_string().contains("update the client"));
        let refusal = Refusal::from(&error);
        assert_eq!(refusal.code, RefusalCode::ClientTooOld);

        let bytes = hello(new, Purpose::Probe).encode();
        let (preamble, body) = split(&bytes, HELLO_LIMIT);
        let error = Hello::decode(&preamble, body, old).unwrap_err();
        assert!(error.to_string().contains("update the server"));
    }

    #[test]
    fn a_refusal_from_another_major_version_is_understood() {
        let refusal = Refusal { code: RefusalCode::ServerTooOld, sentence: "too old".into() };
        let bytes = refusal.encode(Version { major: 77, minor: 0 });
        let (preamble, body) = split(&bytes, ANSWER_LIMIT);
        assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Refusal(refusal)));
    }

    #[test]
    fn a_newer_minor_version_may_append() {
        let newer = Version { major: VERSION.major, minor: VERSION.minor + 1 };
        let mut bytes = hello(newer, Purpose::Probe).encode();
        bytes.extend_from_slice(b"more");
        let (head, body) = bytes.split_first_chunk::<{ Preamble::SIZE }>().unwrap();
        let preamble = Preamble::decode(head, HELLO_LIMIT).unwrap();
        assert_eq!(Hello::decode(&preamble, body, VERSION).unwrap().purpose, Purpose::Probe);
    }

    #[test]
    fn a_client_of_before_tells_no_process() {
        let bytes = hello(VERSION, Purpose::Probe).encode();
        let (preamble, body) = split(&bytes, HELLO_LIMIT);
        let before = &body[..body.len() - 12];
        assert_eq!(Hello::decode(&preamble, before, VERSION).unwrap().process, Process::default());
        assert!(Hello::decode(&preamble, &body[..body.len() - 1], VERSION).is_err());
    }

    #[test]
    fn something_else_is_recognised() {
        let http = b"GET / HTTP/1.1\r\n";
        assert_eq!(Preamble::decode(http, HELLO_LIMIT), Err(HandshakeError::NotOutboard));
    }

    proptest! {
        #[test]
        fn any_body_decodes_or_fails(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let preamble = Preamble { version: VERSION, len: body.len() as u32 };
            let _ = Hello::decode(&preamble, &body, VERSION);
            let _ = Answer::decode(&preamble, &body, VERSION);
        }
    }
}
