//! The key of a client, to which a lease is bound.

use outboard_pool::words::Thumbprint;

/// A new key: Ed25519 as PKCS #8 in PEM, and the SHA-256 of its public half.
///
/// # Errors
///
/// If the system gives no randomness.
pub fn make() -> Result<(String, Thumbprint), rcgen::Error> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let hash = ring::digest::digest(&ring::digest::SHA256, key.public_key_raw());
    let text: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let thumbprint = text.parse().expect("a hash has 64 digits");
    Ok((key.serialize_pem(), thumbprint))
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
