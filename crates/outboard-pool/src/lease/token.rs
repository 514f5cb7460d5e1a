//! A lease as text that its broker signed: PASETO, version 4, public.

use super::{KeyId, Lease, PublicKeys, SigningKey};
use crate::words::{LeaseNumber, ServerName};
use jiff::{SignedDuration, Timestamp};
use pasetors::token::{Public, UntrustedToken};
use pasetors::version4::{PublicToken, V4};
use serde::{Deserialize, Serialize};

/// How far the clocks of broker and server may be apart.
pub const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_secs(30);

/// The most bytes of a token: it is not looked into before.
pub const TOKEN_LENGTH: usize = 1 << 20;

/// Signed with every lease and written into none: what the same key signs for another purpose is
/// no lease.
const PURPOSE: &[u8] = b"outboard lease 1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    kid: String,
}

/// Why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSigned {
    /// It would be larger than what is accepted.
    #[error("lease {0} would be longer than {TOKEN_LENGTH} bytes; grant fewer devices at once")]
    TooLong(LeaseNumber),
    /// It ends before it begins.
    #[error("lease {0} would end before it begins; give it a later end")]
    NeverGood(LeaseNumber),
    /// The key cannot sign.
    #[error("the broker's key cannot sign lease {0}; make a new key")]
    Key(LeaseNumber),
}

/// Why a server does not believe a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No token, or not as it was signed.
    #[error("the lease is damaged: it is not what a broker signed; ask for a new one")]
    Damaged,
    /// Signed by nobody that the server knows.
    #[error(
        "the lease is of a key that this server does not know; ask the broker of this server's \
         pool for one, or give the server the broker's present key"
    )]
    UnknownKey,
    /// The broker is of another release.
    #[error(
        "the broker signed a lease of a form that this server does not know; give both the same \
         release"
    )]
    OtherForm,
    /// It is over.
    #[error("lease {number} has expired at {expired}, and it is {now} here; ask for a new one")]
    Expired {
        /// Which one.
        number: LeaseNumber,
        /// Its end.
        expired: Timestamp,
        /// The server's time.
        now: Timestamp,
    },
    /// It has not begun.
    #[error(
        "lease {number} is not yet valid: it begins at {begins}, and it is {now} here; wait, or \
         set this server's clock"
    )]
    NotYet {
        /// Which one.
        number: LeaseNumber,
        /// Its begin.
        begins: Timestamp,
        /// The server's time.
        now: Timestamp,
    },
    /// It has nothing of this server.
    #[error("lease {number} is for another server: it has no device of {server}, but of {others}")]
    OtherServer {
        /// Which one.
        number: LeaseNumber,
        /// The server that it was shown to.
        server: ServerName,
        /// The servers of its devices, or the first of them.
        others: String,
    },
}

/// Signs a lease.
///
/// # Errors
///
/// If nobody would accept it.
pub fn sign(lease: &Lease, key: &SigningKey) -> Result<String, NotSigned> {
    let number = lease.number;
    if lease.expires <= lease.not_before {
        return Err(NotSigned::NeverGood(number));
    }
    let footer = Footer { kid: key.public().id().0 };
    let json = |what: serde_json::Result<Vec<u8>>| {
        what.expect("names, numbers and times have a form in JSON")
    };
    let (claims, footer) = (json(serde_json::to_vec(lease)), json(serde_json::to_vec(&footer)));
    let token = PublicToken::sign(&key.secret, &claims, Some(&footer), Some(PURPOSE))
        .map_err(|_| NotSigned::Key(number))?;
    if token.len() > TOKEN_LENGTH {
        return Err(NotSigned::TooLong(number));
    }
    Ok(token)
}

/// What a token says, if a key signed it that this server believes, and it is good here and now.
/// Whether the client is the one that may use it, says [`Lease::admits`].
///
/// # Errors
///
/// If it is not; the sentence says why.
pub fn verify(
    token: &str,
    keys: &PublicKeys,
    server: &ServerName,
    now: Timestamp,
) -> Result<Lease, Denied> {
    let lease = authentic(token, keys)?;
    let number = lease.number;
    // A tolerance is added by a difference: the largest time plus one is none.
    if now.duration_since(lease.expires) > CLOCK_TOLERANCE {
        return Err(Denied::Expired { number, expired: lease.expires, now });
    }
    if lease.not_before.duration_since(now) > CLOCK_TOLERANCE {
        return Err(Denied::NotYet { number, begins: lease.not_before, now });
    }
    if lease.on(server).next().is_none() {
        let (server, others) = (server.clone(), servers_of(&lease));
        return Err(Denied::OtherServer { number, server, others });
    }
    Ok(lease)
}

/// What a token says, if a key signed it that this server believes, whenever and wherever it is
/// good.
///
/// # Errors
///
/// If nobody known signed it.
pub fn authentic(token: &str, keys: &PublicKeys) -> Result<Lease, Denied> {
    if token.len() > TOKEN_LENGTH {
        return Err(Denied::Damaged);
    }
    let token = UntrustedToken::<Public, V4>::try_from(token).map_err(|_| Denied::Damaged)?;
    let footer: Footer =
        serde_json::from_slice(token.untrusted_footer()).map_err(|_| Denied::Damaged)?;
    let key = keys.get(&KeyId(footer.kid)).ok_or(Denied::UnknownKey)?;
    let trusted =
        PublicToken::verify(&key.0, &token, None, Some(PURPOSE)).map_err(|_| Denied::Damaged)?;
    serde_json::from_str(trusted.payload()).map_err(|_| Denied::OtherForm)
}

fn servers_of(lease: &Lease) -> String {
    /// How many servers a sentence names.
    const LISTED: usize = 4;
    let mut names: Vec<&str> = lease.devices.iter().map(|one| one.server.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    match names.len() {
        0 => "no server".into(),
        1..=LISTED => names.join(", "),
        more => format!("{} and {} more", names[..LISTED].join(", "), more - LISTED),
    }
}
