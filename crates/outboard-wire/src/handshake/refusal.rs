//! Why a server declines.

use super::answer::REFUSAL;
use super::{HandshakeError, Version, message};
use crate::Code;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

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
    /// The client has not shown who it is, or not so that the server believes it.
    NotAuthenticated,
    /// The client's owner has as much as the owner may have.
    OverLimit,
    /// The session has ended, and cannot go on.
    SessionOver,
    /// A reason that this program does not know.
    Other(u16),
}

impl Refusal {
    /// A refusal with an error code of its own, more exact than that of its reason. It ends the
    /// sentence, so that clients of any release show it.
    pub fn new(code: RefusalCode, error: Code, sentence: &str) -> Refusal {
        Refusal { code, sentence: error.end(sentence) }
    }

    /// Its error code: the one that ends the sentence, else that of the reason.
    pub fn error(&self) -> Code {
        Code::at_end_of(&self.sentence).unwrap_or_else(|| self.code.error())
    }

    /// The whole message, preamble included. `own` is the server's version.
    pub fn encode(&self, own: Version) -> Vec<u8> {
        message(own, |writer| {
            writer.u8(REFUSAL);
            writer.put(&self.code);
            writer.str(&self.sentence);
        })
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.error().end(&self.sentence))
    }
}

impl RefusalCode {
    pub(super) const KNOWN: [(RefusalCode, u16); 12] = [
        (RefusalCode::ClientTooOld, 1),
        (RefusalCode::ServerTooOld, 2),
        (RefusalCode::BadHello, 3),
        (RefusalCode::NoSession, 4),
        (RefusalCode::NoDevice, 5),
        (RefusalCode::Busy, 6),
        (RefusalCode::WorkerFailed, 7),
        (RefusalCode::Stopping, 8),
        (RefusalCode::NotAllowed, 9),
        (RefusalCode::NotAuthenticated, 10),
        (RefusalCode::OverLimit, 11),
        (RefusalCode::SessionOver, 12),
    ];

    /// The code's number on the wire.
    pub fn number(self) -> u16 {
        match self {
            RefusalCode::Other(number) => number,
            known => {
                Self::KNOWN.iter().find(|(code, _)| *code == known).map_or(0, |(_, number)| *number)
            }
        }
    }

    /// The error code for people.
    pub fn error(self) -> Code {
        match self {
            RefusalCode::ClientTooOld => Code::ClientTooOld,
            RefusalCode::ServerTooOld => Code::ServerTooOld,
            RefusalCode::BadHello => Code::BadHello,
            RefusalCode::NoSession => Code::NoSession,
            RefusalCode::NoDevice => Code::NoDevice,
            RefusalCode::Busy => Code::Busy,
            RefusalCode::WorkerFailed => Code::WorkerFailed,
            RefusalCode::Stopping => Code::Stopping,
            RefusalCode::NotAllowed => Code::NotAllowed,
            RefusalCode::NotAuthenticated => Code::NotAuthenticated,
            RefusalCode::OverLimit => Code::OverLimit,
            RefusalCode::SessionOver => Code::SessionOver,
            RefusalCode::Other(_) => Code::Refused,
        }
    }

    /// The code with this number on the wire.
    pub fn from_number(number: u16) -> RefusalCode {
        Self::KNOWN
            .iter()
            .find(|(_, n)| *n == number)
            .map_or(RefusalCode::Other(number), |(code, _)| *code)
    }
}

impl Encode for RefusalCode {
    fn encode(&self, writer: &mut Writer) {
        writer.u16(self.number());
    }
}

impl<'a> Decode<'a> for RefusalCode {
    fn decode(reader: &mut Reader<'a>) -> Result<RefusalCode, DecodeError> {
        Ok(RefusalCode::from_number(reader.u16()?))
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
