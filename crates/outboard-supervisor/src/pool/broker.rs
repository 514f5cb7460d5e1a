//! The broker of a server's pool: where it is, and how both know each other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use outboard_auth::certificate::{read_certificates, read_chain};
use outboard_auth::files::read_secret;
use outboard_broker_client::{Access, Urls};
use outboard_pool::lease::SigningKey;
use outboard_pool::words::LabelText;
use outboard_transport::tls::{Anchor, Fingerprint};

use super::error::PoolError;
use super::own_key::own_key;

/// A broker to which a server says how it is.
#[derive(Debug, Clone)]
pub struct Broker {
    /// Where it is; where all of them are, if the pool has several.
    pub urls: Urls,
    /// SHA-256 of its certificate, or ...
    pub fingerprint: Option<Fingerprint>,
    /// ... authorities that sign it, in PEM.
    pub authorities: Option<PathBuf>,
    /// A file with the server's token there.
    pub token: Option<PathBuf>,
    /// The server's certificate there, in PEM, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
    /// Where clients reach the server, `HOST:PORT`; without it, where it listens.
    pub address: Option<String>,
    /// What is said of the server.
    pub labels: BTreeMap<LabelText, LabelText>,
}

impl Broker {
    /// The way to it: it is believed only if it is known.
    pub(crate) fn access(&self) -> Result<Access, PoolError> {
        let failed = |error: &dyn fmt::Display| PoolError::Broker(error.to_string());
        let anchor = match (&self.fingerprint, &self.authorities) {
            (Some(fingerprint), _) => Anchor::Pinned(*fingerprint),
            (None, Some(path)) => {
                Anchor::Authorities(read_certificates(path).map_err(|error| failed(&error))?)
            }
            (None, None) => return Err(PoolError::UnknownBroker),
        };
        let own = self.own.as_ref().map(|(certificate, key)| read_chain(certificate, key));
        let own = own.transpose().map_err(|error| failed(&error))?;
        let access = Access::new(self.urls.clone(), anchor, own, self.token()?);
        access.map_err(|error| failed(&error))
    }

    /// The key to which the server's name there belongs.
    pub(crate) fn key(state: Option<&Path>) -> Result<Option<SigningKey>, PoolError> {
        state.map(own_key).transpose()
    }

    /// The server's token there.
    fn token(&self) -> Result<Option<String>, PoolError> {
        let Some(path) = &self.token else { return Ok(None) };
        let failed = |reason: String| PoolError::Token { path: path.clone(), reason };
        let bytes = read_secret(path).map_err(|error| failed(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| failed(error.to_string()))?;
        let token = text.trim();
        if token.is_empty() || token.len() > 1024 || !token.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(failed("it is to hold one token and nothing else".to_owned()));
        }
        Ok(Some(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_cannot_be_recognised_is_not_believed() {
        let broker = Broker {
            urls: "https://broker".parse().unwrap(),
            fingerprint: None,
            authorities: None,
            token: None,
            own: None,
            address: None,
            labels: BTreeMap::new(),
        };
        assert!(matches!(broker.access(), Err(PoolError::UnknownBroker)));
        let pinned = Broker { fingerprint: Some(Fingerprint([1; 32])), ..broker.clone() };
        assert!(pinned.access().is_ok());
        let absent = Broker { token: Some("/nowhere/token".into()), ..pinned };
        assert!(absent.access().unwrap_err().to_string().contains("/nowhere/token"));
    }
}
