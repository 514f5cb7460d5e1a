//! Showing who one is.

use core::fmt;

use super::peers::PEERS;
use super::resume::RESUME;
use super::{Answer, Extensions, Kind, Version, message};
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The part of a hello with a [`Token`].
pub const TOKEN: Kind = Kind(1);
/// The part of a hello with a [`Proof`].
pub const PROOF: Kind = Kind(5);

/// A bearer token, as its owner was given it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

/// Shows that the client has a session's key without telling it: for a hello in the clear, behind
/// which the connection is encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// Drawn anew for each connection.
    pub nonce: u128,
    /// A keyed hash of what the connection is for.
    pub tag: [u8; 32],
}

/// The server has accepted the client, and encrypts anew: from here on the connection belongs to
/// whoever has the certificate of this fingerprint. To it the client shows the key before anything
/// else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secure {
    /// SHA-256 of the certificate.
    pub fingerprint: [u8; 32],
    /// The session's key.
    pub key: u128,
}

/// Nobody finds a token in a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secure(..)")
    }
}

impl Encode for Token {
    fn encode(&self, writer: &mut Writer) {
        writer.str(&self.0);
    }
}

impl<'a> Decode<'a> for Token {
    fn decode(reader: &mut Reader<'a>) -> Result<Token, DecodeError> {
        reader.get().map(Token)
    }
}

impl Encode for Proof {
    fn encode(&self, writer: &mut Writer) {
        writer.u128(self.nonce);
        writer.fixed(&self.tag);
    }
}

impl<'a> Decode<'a> for Proof {
    fn decode(reader: &mut Reader<'a>) -> Result<Proof, DecodeError> {
        Ok(Proof { nonce: reader.u128()?, tag: reader.array()? })
    }
}

pub(super) const SECURE: u8 = 4;

impl Secure {
    /// The whole message, preamble included.
    pub fn encode(&self, own: Version) -> Vec<u8> {
        message(own, |writer| {
            writer.u8(SECURE);
            writer.fixed(&self.fingerprint);
            writer.u128(self.key);
        })
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Answer, DecodeError> {
        Ok(Answer::Secure(Secure { fingerprint: reader.array()?, key: reader.u128()? }))
    }
}

/// What a [`Proof`] is a keyed hash of: nobody on the way can change what the connection is for,
/// how far it says that things have come, or which link it belongs to.
pub fn proven(session: u64, purpose: u8, nonce: u128, more: &Extensions) -> Vec<u8> {
    let mut writer = Writer::with_capacity(96);
    writer.fixed(b"outboard: has the key of a session ");
    writer.u64(session);
    writer.u8(purpose);
    writer.u128(nonce);
    writer.fixed(more.part(RESUME).unwrap_or_default());
    writer.fixed(more.part(PEERS).unwrap_or_default());
    writer.into_vec()
}
