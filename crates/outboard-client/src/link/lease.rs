//! The lease of a pool that a client shows to the pool's servers.

use std::time::{SystemTime, UNIX_EPOCH};

use ct_codecs::{Base64UrlSafeNoPadding, Decoder};
use outboard_transport::Endpoint;
use outboard_transport::client_key::ClientKey;
use outboard_transport::tls::Fingerprint;
use outboard_wire::handshake::HELLO_LIMIT;
use outboard_wire::handshake::lease::ShownLease;
use serde_json::Value;

use super::security::{Security, SecurityError};

/// What a lease begins with.
const HEADER: &str = "v4.public.";
/// What signs it, behind what it says.
const SIGNATURE_BYTES: usize = 64;
/// How many servers a sentence names.
const NAMED: usize = 4;
/// Room in a hello for everything else.
const REST_OF_HELLO: usize = 4 << 10;

/// A lease with the key to which it is bound, for one server.
pub(super) struct Lease {
    token: String,
    server: String,
    key: ClientKey,
    time: u64,
    nonce: u128,
}

impl Lease {
    /// Reads what the settings name, for a hello that is about to be said.
    pub(super) fn read(security: &Security, address: &Endpoint) -> Result<Lease, SecurityError> {
        let (Some(path), Some(key_path)) = (&security.lease, &security.lease_key) else {
            return Err(SecurityError::HalfALease);
        };
        let failed = |reason: &dyn std::fmt::Display| {
            SecurityError::file(security.setting("OUTBOARD_LEASE"), path, reason)
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        let token = text.trim();
        if token.len() > HELLO_LIMIT - REST_OF_HELLO {
            let most = (HELLO_LIMIT - REST_OF_HELLO) >> 10;
            return Err(failed(&format_args!(
                "a lease of more than {most} KiB cannot be shown; ask for fewer devices at once"
            )));
        }
        let names = servers(token).ok_or_else(|| failed(&"it is to hold one lease"))?;
        let key_failed = |reason: &dyn std::fmt::Display| {
            SecurityError::file(security.setting("OUTBOARD_LEASE_KEY"), key_path, reason)
        };
        let pem = std::fs::read(key_path).map_err(|error| key_failed(&error))?;
        let key = ClientKey::from_pem(&pem).map_err(|error| key_failed(&error))?;
        let server = match &security.pool_name {
            Some(name) => name.trim().to_owned(),
            None => meant(&names, address).ok_or_else(|| SecurityError::NotInLease {
                names: listed(&names),
                address: address.to_string(),
            })?,
        };
        let nonce = outboard_transport::random::<16>().map_err(SecurityError::NoRandomness)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Lease {
            token: token.to_owned(),
            server,
            key,
            time: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            nonce: u128::from_le_bytes(nonce),
        })
    }

    /// The part of the hello, for a server that has shown this certificate.
    pub(super) fn shown(&self, certificate: Option<Fingerprint>) -> ShownLease {
        let mut shown = ShownLease {
            token: self.token.clone(),
            server: self.server.clone(),
            key: self.key.public(),
            time: self.time,
            nonce: self.nonce,
            signature: [0; 64],
        };
        let statement = shown.statement(certificate.map(|fingerprint| fingerprint.0).as_ref());
        shown.signature = self.key.sign(&statement);
        shown
    }
}

/// The servers of a lease, as it says itself: whether that is so, servers check.
fn servers(token: &str) -> Option<Vec<String>> {
    let payload = token.strip_prefix(HEADER)?.split('.').next()?;
    let bytes = Base64UrlSafeNoPadding::decode_to_vec(payload, None).ok()?;
    let said = bytes.len().checked_sub(SIGNATURE_BYTES)?;
    let claims: Value = serde_json::from_slice(&bytes[..said]).ok()?;
    let devices = claims.get("devices")?.as_array()?;
    let mut names: Vec<String> = devices
        .iter()
        .map(|device| Some(device.get("server")?.as_str()?.to_owned()))
        .collect::<Option<_>>()?;
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then_some(names)
}

/// Which of these servers is at an address: the only one, or the one that is called so.
fn meant(names: &[String], address: &Endpoint) -> Option<String> {
    if let [only] = names {
        return Some(only.clone());
    }
    let whole = address.to_string();
    let host = match address {
        Endpoint::Tcp(address) => Some(address.host.as_str()),
        _ => None,
    };
    let is_called = |called: &str| names.iter().find(|name| *name == called).cloned();
    is_called(&whole).or_else(|| host.and_then(is_called))
}

fn listed(names: &[String]) -> String {
    let first = names[..names.len().min(NAMED)].join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {

    use ct_codecs::Encoder;
    use outboard_transport::client_key::has_signed;

    use super::*;

    /// The private key of RFC 8410.
    const PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";

    fn token(servers: &[&str]) -> String {
        let devices: Vec<Value> =
            servers.iter().map(|name| serde_json::json!({"server": name, "device": "x"})).collect();
        let mut bytes = serde_json::json!({"devices": devices}).to_string().into_bytes();
        bytes.extend([7; SIGNATURE_BYTES]);
        let payload = Base64UrlSafeNoPadding::encode_to_string(&bytes).unwrap();
        format!("{HEADER}{payload}.eyJraWQiOiJ4In0")
    }

    fn files(lease: &str, key: &str) -> (tempfile::TempDir, Security) {
        let folder = tempfile::tempdir().unwrap();
        let [lease_path, key_path] = ["lease", "key"].map(|name| folder.path().join(name));
        std::fs::write(&lease_path, lease).unwrap();
        std::fs::write(&key_path, key).unwrap();
        let security =
            Security { lease: Some(lease_path), lease_key: Some(key_path), ..Security::default() };
        (folder, security)
    }

    fn at(address: &str) -> Endpoint {
        address.parse().unwrap()
    }

    #[test]
    fn a_lease_is_shown_with_a_proof_for_one_server_and_one_certificate() {
        let (_files, security) = files(&format!("{}\n", token(&["gpu1"])), PEM);
        let lease = Lease::read(&security, &at("10.0.0.1:9470")).unwrap();
        let (here, there) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
        let shown = lease.shown(Some(here));
        assert_eq!((shown.server.as_str(), &shown.token), ("gpu1", &token(&["gpu1"])));
        let fits = |certificate: Option<Fingerprint>| {
            let statement = shown.statement(certificate.map(|print| print.0).as_ref());
            has_signed(&shown.key, &statement, &shown.signature)
        };
        assert!(fits(Some(here)) && !fits(Some(there)) && !fits(None));
        let again = Lease::read(&security, &at("10.0.0.1:9470")).unwrap();
        assert_ne!(again.shown(None).nonce, shown.nonce);
    }

    #[test]
    fn the_server_is_the_only_one_the_one_called_so_or_named() {
        let names = ["10.0.0.9:80", "gpu1", "gpu2"].map(str::to_owned);
        assert_eq!(meant(&names, &at("gpu2:9471")).as_deref(), Some("gpu2"));
        assert_eq!(meant(&names, &at("10.0.0.9:80")).as_deref(), Some("10.0.0.9:80"));
        assert_eq!(meant(&names, &at("gpu3")), None);
        assert_eq!(meant(&names[..1], &at("gpu3")).as_deref(), Some("10.0.0.9:80"));
        let (_files, security) = files(&token(&["gpu1", "gpu2"]), PEM);
        let error = Lease::read(&security, &at("gpu3")).err().unwrap().to_string();
        assert!(error.contains("gpu1, gpu2") && error.contains("gpu3:9470"), "{error}");
        let named = Security { pool_name: Some("gpu2".into()), ..security };
        assert_eq!(Lease::read(&named, &at("gpu3")).unwrap().server, "gpu2");
    }

    #[test]
    fn what_cannot_be_shown_is_named() {
        let good = token(&["gpu1"]);
        for (name, lease, key, told) in [
            ("no-lease", "obt_1", PEM, "OUTBOARD_LEASE"),
            ("empty", "", PEM, "one lease"),
            ("short", "v4.public.AAAA", PEM, "one lease"),
            ("no-devices", &token(&[]), PEM, "one lease"),
            ("no-key", &good, "k4.secret.x", "OUTBOARD_LEASE_KEY"),
            ("long", &"x".repeat(HELLO_LIMIT), PEM, "fewer devices"),
        ] {
            let (_files, security) = files(lease, key);
            let error = Lease::read(&security, &at("gpu1")).err().unwrap().to_string();
            assert!(error.contains(told), "{name}: {error}");
        }
        let half = Security { lease: Some("/x".into()), ..Security::default() };
        assert!(matches!(Lease::read(&half, &at("gpu1")), Err(SecurityError::HalfALease)));
        let absent = Security { lease_key: Some("/x".into()), ..half };
        assert!(Lease::read(&absent, &at("gpu1")).err().unwrap().to_string().contains("/x"));
    }
}
