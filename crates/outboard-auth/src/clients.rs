//! Certificates of clients.

use std::path::Path;
use std::sync::Arc;

use outboard_pool::api::Role;
use outboard_transport::tls::provider;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use crate::AuthError;
use crate::certificate::read_certificates;
use crate::tokens::is_owner;
use outboard_control::identity::{Identity, Limits};

/// Checks certificates of clients against the authorities in a file.
pub fn verifier(authorities: &Path) -> Result<Arc<dyn ClientCertVerifier>, AuthError> {
    let failed = |error: &dyn std::fmt::Display| {
        AuthError::file("the file of authorities", authorities, error)
    };
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(authorities)? {
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()));
    // Other clients may have a token; a client with neither gets a sentence.
    builder
        .allow_unauthenticated()
        .build()
        .map(|verifier| verifier as _)
        .map_err(|error| failed(&error))
}

/// The owner of a valid certificate: its subject's common name.
pub fn identity(certificate: &[u8]) -> Option<Identity> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    is_owner(name).then(|| Identity {
        owner: name.to_owned(),
        token: None,
        limits: Limits::default(),
    })
}

/// What the holder of a valid certificate may do at a broker: its subject's organizational unit,
/// or a client's if it has none. Nothing if that is no role.
pub fn role(certificate: &[u8]) -> Option<Role> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    match parsed.subject().iter_organizational_unit().next() {
        None => Some(Role::Client),
        Some(unit) => unit.as_str().ok()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_common_name_is_the_owner() {
        for (name, owner) in
            [("alice", Some("alice")), ("user:0", None), ("anonymous", None), ("a b", None)]
        {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(
                identity(made.der()).map(|identity| identity.owner),
                owner.map(str::to_owned),
                "{name}"
            );
        }
        assert_eq!(identity(b"nonsense"), None);
    }

    #[test]
    fn the_organizational_unit_is_the_role() {
        for (unit, wanted) in [
            (None, Some(Role::Client)),
            (Some("server"), Some(Role::Server)),
            (Some("admin"), Some(Role::Admin)),
            (Some("engineering"), None),
        ] {
            let mut params = CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, "gpu1");
            if let Some(unit) = unit {
                params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
            }
            let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(role(made.der()), wanted, "{unit:?}");
        }
        assert_eq!(role(b"nonsense"), None);
    }
}
