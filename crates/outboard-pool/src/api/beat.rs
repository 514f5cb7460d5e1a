//! What a server says about once a second, and what it is told.

use crate::words::{LeaseNumber, MODEL_LENGTH, Malformed, Server, ServerName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The most leases that a server uses at once: as many parts as its devices have.
pub const LEASES_OF_A_SERVER: usize = 6400;

/// The header with a server's [proof](crate::lease::prove) that a beat is of who has its key.
pub const PROOF_HEADER: &str = "outboard-proof";

/// A server registers by its first beat, and stays by the later ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// What it has; its condition says whether it drains.
    pub server: Server,
    /// Where clients reach it, `HOST:PORT`.
    pub address: String,
    /// The fingerprint of its certificate, `sha256:` and 64 digits, if it encrypts.
    pub fingerprint: Option<String>,
    /// Its release.
    pub release: String,
    /// The leases that its sessions use.
    pub in_use: Vec<LeaseUse>,
    /// The leases of the last answer's [`BeatAnswer::ended`] of which it has no session any more
    /// and accepts none: their devices can be given to others.
    #[serde(default)]
    pub gone: Vec<LeaseNumber>,
    /// A number that each start of the server chooses anew. What this start has said to be gone it
    /// refuses from then on, and need not hear again. A server of an older release says none.
    #[serde(default)]
    pub start: Option<u64>,
}

/// What a server's sessions have of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseUse {
    /// Which lease.
    pub lease: LeaseNumber,
    /// The end of the lease as the server knows it; if the broker knows a later one, it sends it.
    pub expires: Timestamp,
    /// How many sessions use it.
    pub sessions: u32,
    /// How much memory they have allocated.
    pub memory_bytes: u64,
}

/// What a server is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeatAnswer {
    /// The keys that it may believe, as PASERK's text; no others.
    pub keys: Vec<String>,
    /// Leases that are over before their end, and of which this start of the server has not said
    /// that they are gone: it is to end their sessions and to refuse them until they have expired.
    /// At most [`LEASES_OF_A_SERVER`], revoked ones first, then those that ended last.
    pub ended: Vec<LeaseNumber>,
    /// When these expire. A broker of an older release does not say.
    #[serde(default)]
    pub expire: BTreeMap<LeaseNumber, Timestamp>,
    /// Whether there are more that are over, which the next answers say.
    #[serde(default)]
    pub more: bool,
    /// Leases in use with a later end than the server knew, as tokens.
    pub renewed: Vec<String>,
    /// When to beat again, in milliseconds.
    pub next_ms: u32,
}

impl Beat {
    /// Checks what the types cannot say.
    ///
    /// # Errors
    ///
    /// If it cannot be as described; the sentence names the server.
    pub fn check(&self) -> Result<(), Malformed> {
        self.server.check()?;
        let name = &self.server.name;
        check_address(name, &self.address)?;
        let wrong = |what: String| Err(Malformed(format!("server {name}: {what}")));
        if let Some(fingerprint) = &self.fingerprint
            && !is_fingerprint(fingerprint)
        {
            return wrong("its fingerprint is to be sha256: and 64 hexadecimal digits".into());
        }
        let is_release = |c: u8| c.is_ascii_graphic() || c == b' ';
        if self.release.len() > MODEL_LENGTH || !self.release.bytes().all(is_release) {
            return wrong(format!("its release is to be {MODEL_LENGTH} printable characters"));
        }
        if self.in_use.len().max(self.gone.len()) > LEASES_OF_A_SERVER {
            return wrong(format!("it cannot use more than {LEASES_OF_A_SERVER} leases"));
        }
        Ok(())
    }
}

/// The address becomes a part of a list in a client's environment: it must not add to that list.
fn check_address(name: &ServerName, address: &str) -> Result<(), Malformed> {
    let is_host = |host: &str| {
        let fine = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
        (1..=253).contains(&host.len()) && host.bytes().all(fine)
    };
    let by_name = address.rsplit_once(':').is_some_and(|(host, port)| {
        is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if by_name || address.parse::<SocketAddr>().is_ok_and(|address| address.port() > 0) {
        return Ok(());
    }
    Err(Malformed(format!(
        "server {name}: clients cannot reach it at that address; say it as HOST:PORT"
    )))
}

fn is_fingerprint(text: &str) -> bool {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    text.strip_prefix("sha256:")
        .is_some_and(|digits| digits.len() == 64 && digits.bytes().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_server() {
        let name: ServerName = "gpu1".parse().expect("it is a name");
        for fine in ["gpu1:9470", "10.0.0.1:1", "[::1]:9470", "a-b_c.example:65535"] {
            assert_eq!(check_address(&name, fine), Ok(()), "{fine}");
        }
        for wrong in [
            "",
            "gpu1",
            "gpu1:",
            "gpu1:0",
            "gpu1:65536",
            "a,b:1",
            "a/1:1",
            "@f:1",
            "gpu[1-4]:1",
            "::1:1",
            "unix:/x:1",
            "a b:1",
            "a;x=y:1",
        ] {
            assert!(check_address(&name, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fingerprints_have_one_spelling() {
        assert!(is_fingerprint(&format!("sha256:{}", "0a".repeat(32))));
        for wrong in [String::new(), "0a".repeat(32), format!("sha256:{}", "0A".repeat(32))] {
            assert!(!is_fingerprint(&wrong), "{wrong}");
        }
    }
}
