//! The broker of a server's pool: where it is, and how both know each other.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use hyper::Uri;
use outboard_pool::words::LabelText;
use outboard_transport::tls::{Anchor, Fingerprint, client_config};
use rustls::ClientConfig;

use super::error::PoolError;
use outboard_auth::certificate::{read_certificates, read_chain};
use outboard_auth::files::read_secret;

/// Where a broker listens unless its address says otherwise.
const PORT: u16 = 9480;

/// Where a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Its name or address, by which its certificate is checked.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// A text is no address of a broker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not where a broker is: write https://HOST[:PORT]")]
pub struct NotABroker(String);

impl FromStr for Url {
    type Err = NotABroker;

    fn from_str(text: &str) -> Result<Url, NotABroker> {
        let wrong = || NotABroker(text.to_owned());
        let uri: Uri = text.trim().parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let is_plain = uri.query().is_none() && matches!(uri.path(), "" | "/");
        if uri.scheme_str() != Some("https") || !is_plain {
            return Err(wrong());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Url { host, port: uri.port_u16().unwrap_or(PORT) })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A broker to which a server says how it is.
#[derive(Debug, Clone)]
pub struct Broker {
    /// Where it is.
    pub url: Url,
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
    /// How connections to it are encrypted: it is believed only if it is known.
    pub(crate) fn encryption(&self) -> Result<Arc<ClientConfig>, PoolError> {
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
        client_config(anchor, own).map_err(|error| failed(&error))
    }

    /// The server's token there.
    pub(crate) fn token(&self) -> Result<Option<String>, PoolError> {
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
    fn brokers_are_named_by_address() {
        let at = |host: &str, port| Ok(Url { host: host.to_owned(), port });
        assert_eq!("https://broker".parse(), at("broker", PORT));
        assert_eq!("https://broker:443/".parse(), at("broker", 443));
        assert_eq!("https://[::1]:9".parse(), at("::1", 9));
        assert_eq!("https://[::1]:9".parse::<Url>().unwrap().to_string(), "[::1]:9");
        for text in
            ["", "broker", "broker:9480", "http://broker", "https://", "https://a/x", "https://a?x"]
        {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_broker_that_cannot_be_recognised_is_not_believed() {
        let broker = Broker {
            url: "https://broker".parse().unwrap(),
            fingerprint: None,
            authorities: None,
            token: None,
            own: None,
            address: None,
            labels: BTreeMap::new(),
        };
        assert!(matches!(broker.encryption(), Err(PoolError::UnknownBroker)));
        let pinned = Broker { fingerprint: Some(Fingerprint([1; 32])), ..broker.clone() };
        assert!(pinned.encryption().is_ok() && pinned.token().unwrap().is_none());
        let absent = Broker { token: Some("/nowhere/token".into()), ..broker };
        assert!(absent.token().unwrap_err().to_string().contains("/nowhere/token"));
    }
}
