//! Certificates: the server's own, and one for each session.

use std::path::{Path, PathBuf};

use outboard_transport::tls::{Fingerprint, certificates_in};
use rcgen::{Certificate, CertificateParams, DnType, KeyPair, date_time_ymd};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::AuthError;
use crate::files::{lock, own_folder, read_secret, write_secret};

/// Certificates from the server's own to that of an authority, and the key.
pub type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The subject of the certificates; clients know them by their fingerprint.
const NAME: &str = "outboard";

fn make() -> Result<(Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([NAME.to_owned()])?;
    params.distinguished_name.push(DnType::CommonName, NAME);
    // A client that pins a certificate decides itself how long it is valid.
    (params.not_before, params.not_after) =
        (date_time_ymd(2020, 1, 1), date_time_ymd(9999, 12, 31));
    Ok((params.self_signed(&key)?, key))
}

/// A certificate and its key for one session, both in DER.
pub fn for_a_session() -> Result<(Vec<u8>, Vec<u8>), rcgen::Error> {
    make().map(|(certificate, key)| (certificate.der().to_vec(), key.serialize_der()))
}

fn paths(state: &Path) -> (PathBuf, PathBuf) {
    (state.join("server.crt"), state.join("server.key"))
}

/// Whether the server has a certificate of its own making.
pub fn is_there(state: &Path) -> bool {
    let (certificate, key) = paths(state);
    certificate.exists() && key.exists()
}

/// The certificate of the server's own making, made if it is not there.
pub fn own(state: &Path) -> Result<(PathBuf, PathBuf), AuthError> {
    let (certificate, key) = paths(state);
    let failed = |error: &dyn std::fmt::Display| AuthError::file("the folder", state, error);
    own_folder(state).map_err(|error| failed(&error))?;
    // Each file exists whole or not at all, and their folder need not be writable.
    if is_there(state) {
        return Ok((certificate, key));
    }
    // A server and a command may be here at once.
    let _held = lock(&state.join("server.lock")).map_err(|error| failed(&error))?;
    if !is_there(state) {
        let (text, made) =
            make().map_err(|error| failed(&error)).map(|(made, key)| (made.pem(), key))?;
        write_secret(&key, made.serialize_pem().as_bytes()).map_err(|error| failed(&error))?;
        write_secret(&certificate, text.as_bytes()).map_err(|error| failed(&error))?;
    }
    Ok((certificate, key))
}

/// Certificates in a file in PEM, at least one.
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AuthError> {
    certificates_in(path).map_err(|error| AuthError::file("the file of certificates", path, &error))
}

/// When the first of the certificates in a file expires that does, in seconds since 1970.
pub fn expires(path: &Path) -> Result<i64, AuthError> {
    let end = |certificate: &CertificateDer<'_>| {
        let parsed = x509_parser::parse_x509_certificate(certificate);
        parsed.map(|(_, parsed)| parsed.validity().not_after.timestamp())
    };
    let ends: Result<Vec<i64>, _> = read_certificates(path)?.iter().map(end).collect();
    let ends = ends.map_err(|error| AuthError::file("the file of certificates", path, error))?;
    Ok(ends.into_iter().min().unwrap_or(i64::MAX))
}

/// A chain and its key from two files in PEM.
pub fn read_chain(certificate: &Path, key: &Path) -> Result<Chain, AuthError> {
    let chain = read_certificates(certificate)?;
    let failed = |error: &dyn std::fmt::Display| AuthError::file("the key", key, error);
    let secret = read_secret(key).map_err(|error| failed(&error))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|error| failed(&error))?;
    Ok((chain, secret))
}

/// The fingerprint by which clients know the server, of the first certificate in a file.
pub fn fingerprint(certificate: &Path) -> Result<Fingerprint, AuthError> {
    read_certificates(certificate).map(|certificates| Fingerprint::of(&certificates[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_one_certificate_for_ever() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        assert!(!is_there(folder));
        let (certificate, key) = own(folder).unwrap();
        let first = fingerprint(&certificate).unwrap();
        read_chain(&certificate, &key).unwrap();
        assert_eq!(own(folder).unwrap(), (certificate.clone(), key.clone()));
        assert_eq!(fingerprint(&certificate).unwrap(), first);
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::metadata(&key).unwrap().mode() & 0o777, 0o600);
        assert!(read_chain(&key, &key).is_err(), "a key is no certificate");
    }

    #[test]
    fn each_session_has_another() {
        let ((one, _), (other, _)) = (for_a_session().unwrap(), for_a_session().unwrap());
        assert_ne!(Fingerprint::of(&one), Fingerprint::of(&other));
    }
}
