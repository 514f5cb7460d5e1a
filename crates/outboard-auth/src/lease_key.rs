//! The key of a client, to which a lease is bound.

use outboard_pool::words::Thumbprint;
use outboard_transport::client_key::{ClientKey, thumbprint};

/// A new key: Ed25519 as PKCS #8 in PEM, and the SHA-256 of its public half.
///
/// # Errors
///
/// If the system gives no randomness.
pub fn make() -> Result<(String, Thumbprint), rcgen::Error> {
    let pem = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?.serialize_pem();
    let key = ClientKey::from_pem(pem.as_bytes()).expect("it was made so");
    let thumbprint = thumbprint(&key.public()).parse().expect("a hash has 64 digits");
    Ok((pem, thumbprint))
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
}
