//! Trust and encryption: certificates, fingerprints and the settings of rustls.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use outboard_wire::handshake::peers::Ticket;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring as suites;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, ServerConfig,
    SignatureScheme,
};
use subtle::ConstantTimeEq;

/// SHA-256 of a certificate in DER: what `openssl x509 -fingerprint -sha256` prints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

/// Which server a client trusts.
#[derive(Debug, Clone)]
pub enum Anchor {
    /// The holder of this certificate's key, whatever name and dates the certificate has.
    Pinned(Fingerprint),
    /// The holder of a certificate for the server's name from one of these authorities.
    Authorities(Vec<CertificateDer<'static>>),
}

/// Settings of TLS that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A text is no fingerprint.
    #[error("`{0}` is not a fingerprint; write sha256: and 64 hexadecimal digits")]
    Fingerprint(String),
    /// rustls does not take a key or a certificate.
    #[error("{0}")]
    Unfit(#[from] rustls::Error),
    /// No authority could be read.
    #[error("there is no certificate of an authority in it")]
    NoAuthority,
}

/// What a fingerprint begins with, in text.
const PREFIX: &str = "sha256:";

impl Fingerprint {
    /// Of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Fingerprint {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = SetupError;

    /// Also takes what `openssl` prints, with colons and capitals.
    fn from_str(text: &str) -> Result<Fingerprint, SetupError> {
        let wrong = || SetupError::Fingerprint(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let digits: Vec<u8> = lower
            .strip_prefix(PREFIX)
            .unwrap_or(&lower)
            .bytes()
            .filter(|byte| *byte != b':')
            .collect();
        let digit =
            |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8).ok_or_else(wrong);
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Fingerprint(bytes))
    }
}

/// The algorithms. AES with keys of 128 bits comes first: it is as secure in practice and faster
/// than with 256.
pub fn provider() -> CryptoProvider {
    let mut provider = suites::default_provider();
    provider.cipher_suites = vec![
        suites::cipher_suite::TLS13_AES_128_GCM_SHA256,
        suites::cipher_suite::TLS13_AES_256_GCM_SHA384,
        suites::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    provider
}

/// Settings of a client that trusts the anchor and presents its own certificate if it has one.
///
/// # Errors
/// [`SetupError`] if no authority's certificate can be read, or the own certificate and key do not
/// fit.
pub fn client_config(
    anchor: Anchor,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Result<Arc<ClientConfig>, SetupError> {
    let provider = Arc::new(provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match anchor {
        Anchor::Pinned(wanted) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned { wanted, provider })),
        Anchor::Authorities(certificates) => {
            let mut roots = RootCertStore::empty();
            if roots.add_parsable_certificates(certificates).0 == 0 {
                return Err(SetupError::NoAuthority);
            }
            builder.with_root_certificates(roots)
        }
    };
    let mut config = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    // Each connection is authenticated for itself.
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

/// Settings of a server with this certificate, which requests certificates of clients if there is a
/// verifier for them.
///
/// # Errors
/// [`SetupError`] if certificate and key do not fit.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<ServerConfig, SetupError> {
    let builder = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key)?;
    // The server sends nothing after the handshake that resumes a session later: every client
    // authenticates anew.
    config.send_tls13_tickets = 0;
    config.enable_secret_extraction = true;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(config)
}

/// Takes one certificate and no other.
#[derive(Debug)]
struct Pinned {
    wanted: Fingerprint,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug, thiserror::Error)]
#[error("its certificate is another one: {found}, and {wanted} is wanted")]
struct Another {
    found: Fingerprint,
    wanted: Fingerprint,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let found = Fingerprint::of(certificate);
        if bool::from(found.0.ct_eq(&self.wanted.0)) {
            return Ok(ServerCertVerified::assertion());
        }
        let another = Another { found, wanted: self.wanted };
        Err(CertificateError::Other(OtherError(Arc::new(another))).into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A keyed hash (HMAC) of `what`.
pub fn tag(key: u128, what: &[u8]) -> [u8; 32] {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key.to_le_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(ring::hmac::sign(&key, what).as_ref());
    bytes
}

/// What a session's worker knows of the secret that its supervisors, one after the other, have: it
/// recognises who has the secret, and cannot tell it.
pub fn seal(secret: u128, session: u64) -> [u8; 32] {
    tag(secret, &[&b"supervisor of session "[..], &session.to_le_bytes()].concat())
}

/// The ticket with which another server's worker may call the worker of a session that has this
/// key.
pub fn ticket(key: u128, session: u64, link: u32) -> Ticket {
    Ticket::of(&tag(key, &Ticket::hashed(session, link)))
}
