//! The key of a client, to which a lease is bound.

use outboard_pool::words::{OwnerName, Purpose, Thumbprint};
use outboard_transport::client_key::{ClientKey, thumbprint};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// Sets these keys apart from all else that is derived from the same secret.
const SALT: &[u8] = b"outboard lease key 2";
/// What stands before the 32 bytes of a private key in PKCS #8 (RFC 8410).
const PKCS8: [u8; 16] = [48, 46, 2, 1, 0, 48, 5, 6, 3, 43, 101, 112, 4, 34, 4, 32];

/// A new key: Ed25519 as PKCS #8 in PEM, and the SHA-256 of its public half.
///
/// # Errors
///
/// If the system gives no randomness.
pub fn make() -> Result<(String, Thumbprint), rcgen::Error> {
    Ok(with_thumbprint(&rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?))
}

/// The key for what somebody asks for, for a purpose: everybody makes it who has the secret, and
/// nobody else.
///
/// # Errors
///
/// If it cannot be written as text.
pub fn derive(
    secret: &[u8],
    asker: &OwnerName,
    purpose: &Purpose,
) -> Result<(String, Thumbprint), rcgen::Error> {
    // No name has an end of a line in it.
    let info = [asker.as_str().as_bytes(), b"\n", purpose.as_str().as_bytes()];
    let mut key = [0; 32];
    let made = Salt::new(HKDF_SHA256, SALT).extract(secret);
    let made = made.expand(&info, HKDF_SHA256).and_then(|made| made.fill(&mut key));
    made.expect("a hash is as long as a key");
    let der = PrivatePkcs8KeyDer::from([&PKCS8[..], &key].concat());
    let key =
        rcgen::KeyPair::from_der_and_sign_algo(&PrivateKeyDer::Pkcs8(der), &rcgen::PKCS_ED25519)?;
    Ok(with_thumbprint(&key))
}

fn with_thumbprint(key: &rcgen::KeyPair) -> (String, Thumbprint) {
    let pem = key.serialize_pem();
    let key = ClientKey::from_pem(pem.as_bytes()).expect("it is such a key");
    let thumbprint = thumbprint(&key.public()).parse().expect("a hash has 64 digits");
    (pem, thumbprint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn the_thumbprint_is_that_of_the_key() {
        let (pem, thumbprint) = make().unwrap();
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der()).unwrap();
        let hash = ring::digest::digest(&ring::digest::SHA256, key.public_key().as_ref());
        let text: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(thumbprint.as_str(), text);
        assert_ne!(make().unwrap().1, thumbprint);
    }

    /// The thumbprint was computed with Python's `cryptography` (HKDF, Ed25519): a release that
    /// derives another key would lose the leases of jobs that are about to begin.
    #[test]
    fn a_derived_key_is_the_same_everywhere_and_for_one_purpose_of_one_asker() {
        let secret = "a secret of 32 bytes or more....";
        let of = |secret: &str, asker: &str, purpose: &str| {
            let (asker, purpose) = (asker.parse().unwrap(), purpose.parse().unwrap());
            derive(secret.as_bytes(), &asker, &purpose).unwrap()
        };
        let (pem, thumbprint) = of(secret, "slurm", "slurm.cluster.1234");
        assert_eq!(
            thumbprint.as_str(),
            "56fc11bb32dfc0fb7b5cff62dee0cac8d3869775c170f115273fef370da3bab4"
        );
        assert!(ClientKey::from_pem(pem.as_bytes()).is_ok());
        for (secret, asker, purpose) in [
            (secret, "slurm", "slurm.cluster.1235"),
            (secret, "slurm2", "slurm.cluster.1234"),
            ("another one of 32 bytes or more.", "slurm", "slurm.cluster.1234"),
        ] {
            assert_ne!(of(secret, asker, purpose).1, thumbprint, "{asker} {purpose}");
        }
    }
}
