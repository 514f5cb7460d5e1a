//! Showing a lease of a pool: a part of a hello.
//!
//! The lease itself is a text that the pool's broker has signed, opaque here. It is bound to a key
//! of the client, and the client signs that it means this server, now and once: so neither the
//! lease nor a hello that carries it is of use to anybody else.

use core::fmt;

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The part of a hello that carries a [`ShownLease`].
pub const LEASE: Kind = Kind(12);

/// A lease, and the proof that the client has the key to which it is bound.
#[derive(Clone, PartialEq, Eq)]
pub struct ShownLease {
    /// The lease, as the broker signed it.
    pub token: String,
    /// The server that the client means, by the pool's name for it.
    pub server: String,
    /// The client's public key, Ed25519.
    pub key: [u8; 32],
    /// When the client says this, in milliseconds since 1970.
    pub time: u64,
    /// Drawn anew for each hello.
    pub nonce: u128,
    /// What the client's key makes of [`statement`](ShownLease::statement).
    pub signature: [u8; 64],
}

/// The lease is of use only with the key, but need not stand in a log.
impl fmt::Debug for ShownLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShownLease").field("server", &self.server).finish_non_exhaustive()
    }
}

impl ShownLease {
    /// What the client signs. `certificate` is the SHA-256 of the certificate by which the client
    /// knows the server, if the connection is encrypted: a server that is shown the proof has
    /// another one than the server that it would show it to.
    pub fn statement(&self, certificate: Option<&[u8; 32]>) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.token.len() + 256);
        writer.fixed(b"outboard lease proof v1 ");
        writer.str(&self.server);
        writer.bytes(certificate.map_or(&[], |bytes| &bytes[..]));
        writer.u64(self.time);
        writer.u128(self.nonce);
        writer.str(&self.token);
        writer.into_vec()
    }
}

impl Encode for ShownLease {
    fn encode(&self, writer: &mut Writer) {
        writer.str(&self.token);
        writer.str(&self.server);
        writer.fixed(&self.key);
        writer.u64(self.time);
        writer.u128(self.nonce);
        writer.fixed(&self.signature);
    }
}

impl<'a> Decode<'a> for ShownLease {
    fn decode(reader: &mut Reader<'a>) -> Result<ShownLease, DecodeError> {
        Ok(ShownLease {
            token: reader.get()?,
            server: reader.get()?,
            key: reader.array()?,
            time: reader.u64()?,
            nonce: reader.u128()?,
            signature: reader.array()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extensions;
    use super::*;

    fn shown() -> ShownLease {
        ShownLease {
            token: "v4.public.x".to_owned(),
            server: "gpu1".to_owned(),
            key: [1; 32],
            time: 2,
            nonce: 3,
            signature: [4; 64],
        }
    }

    #[test]
    fn it_travels_and_is_not_shown_in_logs() {
        let mut more = Extensions::default();
        more.set(LEASE, &shown());
        assert_eq!(more.get(LEASE), Ok(Some(shown())));
        more.set(LEASE, &"v4.public.x".to_owned());
        assert!(more.get::<ShownLease>(LEASE).is_err(), "a part that is too short");
        assert!(!format!("{:?}", shown()).contains("public"));
    }

    #[test]
    fn the_statement_is_of_everything_but_the_signature() {
        let whole = shown().statement(Some(&[7; 32]));
        let others = [
            shown().statement(None),
            shown().statement(Some(&[8; 32])),
            ShownLease { token: "v4.public.y".into(), ..shown() }.statement(Some(&[7; 32])),
            ShownLease { server: "gpu2".into(), ..shown() }.statement(Some(&[7; 32])),
            ShownLease { time: 9, ..shown() }.statement(Some(&[7; 32])),
            ShownLease { nonce: 9, ..shown() }.statement(Some(&[7; 32])),
        ];
        assert!(others.iter().all(|other| *other != whole));
        let signed = ShownLease { signature: [9; 64], ..shown() };
        assert_eq!(signed.statement(Some(&[7; 32])), whole);
    }
}
