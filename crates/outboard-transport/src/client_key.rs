//! The key of a client to which leases are bound: Ed25519, by ring.

use std::fmt::Write as _;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

/// A text holds no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no Ed25519 key in PEM in it; `openssl genpkey -algorithm ed25519` makes one")]
pub struct NoKey;

/// A client's private key.
pub struct ClientKey(Ed25519KeyPair);

impl ClientKey {
    /// Reads a key in PEM (PKCS #8).
    ///
    /// # Errors
    /// If there is none in it.
    pub fn from_pem(text: &[u8]) -> Result<ClientKey, NoKey> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(text).map_err(|_| NoKey)?;
        // Without the public key beside the private one, as OpenSSL writes it, too.
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der())
            .map(ClientKey)
            .map_err(|_| NoKey)
    }

    /// The public key.
    pub fn public(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        bytes
    }

    /// Signs a statement.
    pub fn sign(&self, statement: &[u8]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.0.sign(statement).as_ref());
        bytes
    }
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientKey({})", thumbprint(&self.public()))
    }
}

/// Whether the holder of a public key has signed a statement.
pub fn has_signed(public: &[u8; 32], statement: &[u8], signature: &[u8; 64]) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(statement, signature).is_ok()
}

/// How a lease names a public key: its SHA-256, in hexadecimal digits.
pub fn thumbprint(public: &[u8; 32]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, public);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The private key of RFC 8410, section 10.3, and its public key.
    const PEM: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
        -----END PRIVATE KEY-----\n";
    const PUBLIC: &str = "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";

    #[test]
    fn a_key_in_pem_signs_and_its_public_key_says_so() {
        let key = ClientKey::from_pem(PEM.as_bytes()).unwrap();
        let hex = key.public().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex, PUBLIC);
        let signature = key.sign(b"this");
        assert!(has_signed(&key.public(), b"this", &signature));
        assert!(!has_signed(&key.public(), b"that", &signature));
        assert!(!has_signed(&[9; 32], b"this", &signature));
        let mut other = signature;
        other[63] ^= 1;
        assert!(!has_signed(&key.public(), b"this", &other));
        assert_eq!(thumbprint(&key.public()).len(), 64);
        assert!(format!("{key:?}").contains(&thumbprint(&key.public())));
    }

    #[test]
    fn a_key_with_its_public_key_is_read_too() {
        let made = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let key = ClientKey::from_pem(made.serialize_pem().as_bytes()).unwrap();
        assert_eq!(key.public(), made.public_key_raw());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for text in ["", "k4.secret.x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END", &other] {
            assert_eq!(ClientKey::from_pem(text.as_bytes()).err(), Some(NoKey), "{text}");
        }
    }
}
