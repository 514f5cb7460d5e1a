//! What a server says to a hello.

use super::{
    ANSWER_LIMIT, Extensions, HandshakeError, Preamble, Refusal, VERSION, Version, auth,
    check_versions, message,
};
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::plain;

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
    /// It accepts, and somebody else goes on, over a connection that is encrypted anew; another
    /// answer follows there. Only over TLS.
    Secure(auth::Secure),
    /// So many bytes follow: the file that was asked for. Since 1.5, and only to
    /// [`Purpose::Library`](super::Purpose::Library).
    File(u64),
}

/// A client that has to wait before it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// How many are served before it, itself included: 1 is next.
    pub place: u32,
    /// What it waits for: a sentence.
    pub sentence: String,
}

const WELCOME: u8 = 1;
pub(super) const REFUSAL: u8 = 2;
const WAITING: u8 = 3;
const FILE: u8 = 5;

/// The head of a file of so many bytes, preamble included.
pub fn file(own: Version, bytes: u64) -> Vec<u8> {
    message(own, |writer| {
        writer.u8(FILE);
        writer.u64(bytes);
    })
}

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
    /// Reads an answer, on a client of version [`VERSION`]. `read` fills what it is given with the
    /// bytes that come next; `wrong` says what nonsense in them means.
    ///
    /// # Errors
    /// What `read` fails with, and for what [`Preamble::decode`] and [`decode`](Self::decode)
    /// refuse, what `wrong` makes of it.
    pub fn read<E>(
        mut read: impl FnMut(&mut [u8]) -> Result<(), E>,
        wrong: impl Fn(HandshakeError) -> E,
    ) -> Result<Answer, E> {
        let mut head = [0; Preamble::SIZE];
        read(&mut head)?;
        let preamble = Preamble::decode(&head, ANSWER_LIMIT).map_err(&wrong)?;
        let mut body = vec![0; preamble.len as usize];
        read(&mut body)?;
        Answer::decode(&preamble, &body, VERSION).map_err(wrong)
    }

    /// Reads the body that follows `preamble`, on a client of version `own`. Sentences in it are
    /// [`plain`]. A refusal is understood from a server of any version.
    ///
    /// # Errors
    /// [`HandshakeError::ClientTooOld`] or [`HandshakeError::ServerTooOld`] if the versions differ
    /// (a refusal is read all the same); a [`DecodeError`] for a malformed body.
    pub fn decode(
        preamble: &Preamble,
        body: &[u8],
        own: Version,
    ) -> Result<Answer, HandshakeError> {
        let mut reader = Reader::new(body);
        let kind = reader.u8()?;
        if kind == REFUSAL {
            return Ok(Answer::Refusal(Refusal {
                code: reader.get()?,
                sentence: plain(reader.get()?),
            }));
        }
        check_versions(own, preamble.version)?;
        if kind == WAITING {
            return Ok(Answer::Waiting(Waiting {
                place: reader.u32()?,
                sentence: plain(reader.get()?),
            }));
        }
        if kind == auth::SECURE {
            return Ok(auth::Secure::decode(&mut reader)?);
        }
        if kind == FILE {
            return Ok(Answer::File(reader.u64()?));
        }
        if kind != WELCOME {
            return Err(
                DecodeError::Invalid { what: "answer to a hello", value: kind.into() }.into()
            );
        }
        let mut welcome = Welcome {
            version: preamble.version,
            software: plain(reader.get()?),
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
