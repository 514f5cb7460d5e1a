//! How a client knows its server, and shows who it is.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outboard_transport::tls::{Anchor, Fingerprint, SetupError, certificates_in, client_config};
use outboard_transport::{Endpoint, Stream};
use outboard_wire::handshake::Purpose;
use outboard_wire::handshake::auth::Token;
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::ConnectError;
use super::lease::Lease;
use crate::target::Targets;

/// The variable with the servers, as `OUTBOARD_SERVER` lists them, to which the fingerprint and the
/// token of the environment belong.
pub const LOGIN_OF: &str = "OUTBOARD_LOGIN_OF";

/// Whether the connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// If the server is on another machine, or something is known by which to recognise it.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// How a client knows its server, and shows who it is. Files are read when a connection is made.
#[derive(Clone, Default)]
pub struct Security {
    /// Whether the connection is encrypted. Environment: `OUTBOARD_TLS`, `auto`, `on` or `off`.
    pub tls: Tls,
    /// What `OUTBOARD_TLS` says, if it is none of these: then there is no connection, as nobody
    /// knows what was meant.
    pub unknown_tls: Option<String>,
    /// SHA-256 of the server's certificate. Environment: `OUTBOARD_TLS_FINGERPRINT`.
    pub fingerprint: Option<String>,
    /// Authorities that sign certificates of servers, in PEM. Environment: `OUTBOARD_TLS_CA`.
    pub authorities: Option<PathBuf>,
    /// The client's own certificate, in PEM. Environment: `OUTBOARD_TLS_CERT`.
    pub certificate: Option<PathBuf>,
    /// Its key, in PEM. Environment: `OUTBOARD_TLS_KEY`.
    pub key: Option<PathBuf>,
    /// A bearer token. Environment: `OUTBOARD_TOKEN`.
    pub token: Option<String>,
    /// A file with one. Environment: `OUTBOARD_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
    /// A file with a lease of a pool. Environment: `OUTBOARD_LEASE`.
    pub lease: Option<PathBuf>,
    /// A file with the key to which the lease is bound, in PEM. Environment: `OUTBOARD_LEASE_KEY`.
    pub lease_key: Option<PathBuf>,
    /// The pool's name for the server, if the lease does not tell. Environment:
    /// `OUTBOARD_POOL_NAME`.
    pub pool_name: Option<String>,
    /// The server whose own settings these are, if they are one's.
    pub of_server: Option<String>,
    /// The servers to which fingerprint and token belong, if a login says so. Environment:
    /// `OUTBOARD_LOGIN_OF`.
    pub login_of: Option<String>,
    /// What is wrong with the settings of single servers, if anything is: then there is no
    /// connection, either.
    pub mistake: Option<String>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security")
            .field("tls", &self.tls)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// A mistake in the client's own settings.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file cannot be used.
    #[error("{setting} names {path}, which cannot be used: {reason}", path = path.display())]
    File {
        /// The setting that names it.
        setting: String,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A certificate without key, or the other way round.
    #[error("OUTBOARD_TLS_CERT and OUTBOARD_TLS_KEY belong together: set both or neither")]
    Half,
    /// A lease without its key, or the other way round.
    #[error(
        "OUTBOARD_LEASE and OUTBOARD_LEASE_KEY belong together, as a lease is bound to a key: set both or neither"
    )]
    HalfALease,
    /// Nobody knows which server of a lease this is.
    #[error(
        "the lease is for {names}, and nothing says which of them {address} is: give the server its `pool-name` in OUTBOARD_SERVERS"
    )]
    NotInLease {
        /// The names of the lease's servers.
        names: String,
        /// The server's address.
        address: String,
    },
    /// The system has no randomness for a proof.
    #[error("a lease cannot be shown: {0}")]
    NoRandomness(io::Error),
    /// Nobody knows whether to encrypt.
    #[error("OUTBOARD_TLS is `{0}`; it can be auto, on or off")]
    Mode(String),
    /// The settings of single servers cannot be understood.
    #[error("OUTBOARD_SERVERS cannot be used: {0}")]
    OfServers(String),
    /// The fingerprint is none.
    #[error("{0}: {1}")]
    Fingerprint(String, SetupError),
    /// A file was read but is not usable.
    #[error(
        "the certificates of OUTBOARD_TLS_CA, OUTBOARD_TLS_CERT and OUTBOARD_TLS_KEY cannot be used: {0}"
    )]
    Unfit(SetupError),
}

impl Security {
    /// As the environment says.
    pub fn from_env() -> Security {
        let text = |name| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
        let path = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let (tls, unknown_tls) = match text("OUTBOARD_TLS").as_deref().map(str::trim) {
            None | Some("auto") => (Tls::Auto, None),
            Some("on") => (Tls::On, None),
            Some("off") => (Tls::Off, None),
            Some(other) => (Tls::Auto, Some(other.to_owned())),
        };
        Security {
            tls,
            unknown_tls,
            fingerprint: text("OUTBOARD_TLS_FINGERPRINT"),
            authorities: path("OUTBOARD_TLS_CA"),
            certificate: path("OUTBOARD_TLS_CERT"),
            key: path("OUTBOARD_TLS_KEY"),
            token: text("OUTBOARD_TOKEN"),
            token_file: path("OUTBOARD_TOKEN_FILE"),
            lease: path("OUTBOARD_LEASE"),
            lease_key: path("OUTBOARD_LEASE_KEY"),
            pool_name: text("OUTBOARD_POOL_NAME"),
            of_server: None,
            login_of: text(LOGIN_OF),
            mistake: None,
        }
    }

    /// The servers to which these credentials belong, if `address` is none of them. A list that
    /// cannot be read says nothing.
    pub fn login_of_others(&self, address: &str) -> Option<&str> {
        let of = self.login_of.as_deref()?;
        let (servers, address): (Targets, Endpoint) = (of.parse().ok()?, address.parse().ok()?);
        servers.servers().iter().all(|server| server.address != address).then_some(of)
    }

    /// The same failure, or that the credentials are those of other servers if that is why.
    pub(super) fn explain(&self, error: ConnectError) -> ConnectError {
        let address = match &error {
            ConnectError::NotTrusted { address, .. } | ConnectError::NotEncrypted { address } => {
                address
            }
            _ => return error,
        };
        match self.login_of_others(address).filter(|_| self.fingerprint.is_some()) {
            Some(of) => ConnectError::NoLogin { address: address.clone(), of: of.to_owned() },
            None => error,
        }
    }

    /// The TLS settings for a new connection, if it is to be encrypted.
    pub(super) fn encryption(
        &self,
        stream: &dyn Stream,
        address: &str,
    ) -> Result<Option<Arc<ClientConfig>>, ConnectError> {
        if let Some(mistake) = &self.mistake {
            return Err(ConnectError::Security(SecurityError::OfServers(mistake.clone())));
        }
        if let Some(unknown) = &self.unknown_tls {
            return Err(ConnectError::Security(SecurityError::Mode(unknown.clone())));
        }
        let known = self.fingerprint.is_some() || self.authorities.is_some();
        let wanted = match self.tls {
            Tls::Off => false,
            _ if Endpoint::unix_path(address).is_some() || !is_over_a_network(stream) => false,
            Tls::On => true,
            Tls::Auto => known || !is_this_machine(stream),
        };
        if !wanted {
            return Ok(None);
        }
        let anchor = self.anchor().map_err(ConnectError::Security)?;
        let anchor =
            anchor.ok_or_else(|| ConnectError::NothingToTrust { address: address.to_owned() })?;
        let own = self.own().map_err(ConnectError::Security)?;
        let config = client_config(anchor, own)
            .map_err(SecurityError::Unfit)
            .map_err(ConnectError::Security)?;
        Ok(Some(config))
    }

    /// What people call the setting that a variable represents.
    pub(super) fn setting(&self, variable: &str) -> String {
        let Some(server) = &self.of_server else { return variable.to_owned() };
        let key = variable.split_once('_').map_or(variable, |(_, key)| key);
        let key = key.to_lowercase().replace('_', "-");
        format!("`{key}` of {server}")
    }

    /// By what the server is recognised: the narrower, if both are there.
    fn anchor(&self) -> Result<Option<Anchor>, SecurityError> {
        if let Some(text) = &self.fingerprint {
            let fingerprint: Fingerprint = text.parse().map_err(|error| {
                SecurityError::Fingerprint(self.setting("OUTBOARD_TLS_FINGERPRINT"), error)
            })?;
            return Ok(Some(Anchor::Pinned(fingerprint)));
        }
        let Some(path) = &self.authorities else { return Ok(None) };
        certificates(&self.setting("OUTBOARD_TLS_CA"), path)
            .map(|authorities| Some(Anchor::Authorities(authorities)))
    }

    fn own(
        &self,
    ) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, SecurityError> {
        match (&self.certificate, &self.key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => {
                let chain = certificates(&self.setting("OUTBOARD_TLS_CERT"), certificate)?;
                let secret = PrivateKeyDer::from_pem_file(key);
                Ok(Some((
                    chain,
                    secret.map_err(|error| {
                        SecurityError::file(self.setting("OUTBOARD_TLS_KEY"), key, &error)
                    })?,
                )))
            }
            _ => Err(SecurityError::Half),
        }
    }

    /// The token for a hello that starts something, if there is one. It goes in the clear only
    /// where `OUTBOARD_TLS=off` says so, or to a socket of this machine: any of its users may
    /// listen at a port while the server does not.
    pub(super) fn token_for(
        &self,
        purpose: &mut Purpose,
        stream: &dyn Stream,
        address: &str,
        encrypted: bool,
    ) -> Result<Option<Token>, ConnectError> {
        // Over TLS the fingerprint tells who would get it.
        if !encrypted && self.login_of_others(address).is_some() {
            return Ok(None);
        }
        let token = self.token(purpose).map_err(ConnectError::Security)?;
        if token.is_some() && !self.may_tell(stream, encrypted) {
            return Err(ConnectError::TokenInTheClear { address: address.to_owned() });
        }
        Ok(token)
    }

    /// Whether secrets may be told there.
    fn may_tell(&self, stream: &dyn Stream, encrypted: bool) -> bool {
        encrypted || self.tls == Tls::Off || !is_over_a_network(stream)
    }

    /// The lease for a hello that starts something, if there is one. It goes in the clear where a
    /// token does: whoever listens in the server's place could take it there meanwhile.
    pub(super) fn lease_for(
        &self,
        purpose: &mut Purpose,
        stream: &dyn Stream,
        address: &str,
        encrypted: bool,
    ) -> Result<Option<Lease>, ConnectError> {
        if purpose.keyed().is_some() || (self.lease.is_none() && self.lease_key.is_none()) {
            return Ok(None);
        }
        if !self.may_tell(stream, encrypted) {
            return Err(ConnectError::LeaseInTheClear { address: address.to_owned() });
        }
        let address = address
            .parse()
            .map_err(|_| ConnectError::Address(io::ErrorKind::InvalidInput.into()))?;
        Lease::read(self, &address).map(Some).map_err(ConnectError::Security)
    }

    /// The token, if there is one to be shown.
    fn token(&self, purpose: &mut Purpose) -> Result<Option<Token>, SecurityError> {
        if purpose.keyed().is_some() {
            return Ok(None);
        }
        if let Some(token) = &self.token {
            return Ok(Some(Token(token.trim().to_owned())));
        }
        let Some(path) = &self.token_file else { return Ok(None) };
        let failed = |error: &dyn fmt::Display| {
            SecurityError::file(self.setting("OUTBOARD_TOKEN_FILE"), path, error)
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        let token = text.trim();
        if token.is_empty() || token.len() > 1024 || token.contains(char::is_whitespace) {
            return Err(failed(&"it is to hold one token and nothing else"));
        }
        Ok(Some(Token(token.to_owned())))
    }
}

impl SecurityError {
    pub(super) fn file(setting: String, path: &Path, reason: &dyn fmt::Display) -> SecurityError {
        SecurityError::File { setting, path: path.to_owned(), reason: reason.to_string() }
    }
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    certificates_in(path).map_err(|error| SecurityError::file(setting.to_owned(), path, &error))
}

/// Whether anybody may have listened there in the server's place: at a port, any user of the
/// server's machine.
fn is_over_a_network(stream: &dyn Stream) -> bool {
    matches!(stream.transport(), "tcp" | "vsock")
}

/// Whether both ends are on this machine, in a virtual machine or outside of it: by the address
/// that was reached, whatever name led there.
fn is_this_machine(stream: &dyn Stream) -> bool {
    stream.transport() == "vsock"
        || stream
            .peer()
            .parse::<SocketAddr>()
            .is_ok_and(|address| address.ip().to_canonical().is_loopback())
}

/// What rustls said, if an error is one of its.
pub(super) fn of_tls(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> Purpose {
        Purpose::Lane { session: 1, key: 2 }
    }

    #[test]
    fn a_token_is_shown_once_and_comes_from_one_place() {
        let security = Security { token: Some(" obt_1\n".into()), ..Security::default() };
        assert_eq!(security.token(&mut Purpose::Probe).unwrap().unwrap().0, "obt_1");
        assert!(security.token(&mut lane()).unwrap().is_none(), "a key is enough");
        assert!(Security::default().token(&mut Purpose::Probe).unwrap().is_none());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let from_file = Security { token_file: Some(file.clone()), ..Security::default() };
        let error = from_file.token(&mut Purpose::Probe).unwrap_err().to_string();
        assert!(
            error.contains("OUTBOARD_TOKEN_FILE") && error.contains(file.to_str().unwrap()),
            "{error}"
        );
        std::fs::write(&file, "obt_2\n").unwrap();
        assert_eq!(from_file.token(&mut Purpose::Probe).unwrap().unwrap().0, "obt_2");
        for wrong in ["", "\n", "two tokens"] {
            std::fs::write(&file, wrong).unwrap();
            assert!(from_file.token(&mut Purpose::Probe).is_err(), "{wrong:?}");
        }
        assert!(!format!("{security:?}").contains("obt_"));
    }

    #[test]
    fn a_login_is_of_the_servers_that_it_names() {
        let of = |login_of: &str| Security {
            login_of: Some(login_of.into()),
            fingerprint: Some("sha256:1".into()),
            ..Security::default()
        };
        let both = of("gpu1/0,gpu2:80");
        for (address, is_others) in
            [("gpu1:9470", false), ("gpu2:80", false), ("gpu2:9470", true), ("unix:/s", true)]
        {
            assert_eq!(both.login_of_others(address).is_some(), is_others, "{address}");
        }
        assert_eq!(of("@/nowhere").login_of_others("gpu1:9470"), None);
        assert_eq!(Security::default().login_of_others("gpu1:9470"), None);
        let wrong = |address: &str| ConnectError::NotTrusted {
            address: address.to_owned(),
            error: "another one".to_owned(),
        };
        let told = both.explain(wrong("gpu3:9470")).to_string();
        assert!(told.contains("no login for gpu3:9470") && told.contains("gpu1/0"), "{told}");
        assert!(matches!(both.explain(wrong("gpu1:9470")), ConnectError::NotTrusted { .. }));
    }

    #[test]
    fn settings_that_cannot_work_are_named() {
        let wrong = Security { fingerprint: Some("sha256:12".into()), ..Security::default() };
        assert!(wrong.anchor().unwrap_err().to_string().contains("OUTBOARD_TLS_FINGERPRINT"));
        let half = Security { certificate: Some("/x".into()), ..Security::default() };
        assert!(matches!(half.own(), Err(SecurityError::Half)));
        let absent =
            Security { authorities: Some("/nowhere/ca.pem".into()), ..Security::default() };
        assert!(absent.anchor().unwrap_err().to_string().contains("/nowhere/ca.pem"));
        let own = Security { of_server: Some("gpu1:9470".into()), ..absent };
        let error = own.anchor().unwrap_err().to_string();
        assert!(error.starts_with("`tls-ca` of gpu1:9470 names /nowhere/ca.pem"), "{error}");
    }
}
