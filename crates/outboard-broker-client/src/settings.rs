//! What a person says about a broker, by flags or variables.

use crate::address::{BadUrl, Urls};
use crate::connect::Access;
use outboard_transport::tls::{Anchor, Fingerprint, SetupError, certificates_in};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Names the broker.
pub const VARIABLE: &str = "OUTBOARD_POOL";

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The address, or those of several brokers, with commas between them; `OUTBOARD_POOL`.
    pub url: Option<String>,
    /// Of the broker's certificate; `OUTBOARD_POOL_FINGERPRINT`.
    pub fingerprint: Option<String>,
    /// Authorities that sign brokers' certificates, in PEM; `OUTBOARD_POOL_CA`.
    pub authorities: Option<PathBuf>,
    /// The own certificate, in PEM; `OUTBOARD_POOL_CERT`.
    pub certificate: Option<PathBuf>,
    /// Its key, in PEM; `OUTBOARD_POOL_KEY`.
    pub key: Option<PathBuf>,
    /// A token; `OUTBOARD_POOL_TOKEN`.
    pub token: Option<String>,
    /// A file with one; `OUTBOARD_POOL_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
}

/// Settings that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// No broker is named.
    #[error("no broker is named; set --pool or {VARIABLE}")]
    NoBroker,
    /// The address is none.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// Whoever answers could be anybody.
    #[error(
        "there is nothing by which to recognise the broker at {0}; set OUTBOARD_POOL_FINGERPRINT \
         (the broker's log says it, and `outboard token --broker fingerprint`) or OUTBOARD_POOL_CA"
    )]
    NothingToTrust(Urls),
    /// Only one of a pair is there.
    #[error("OUTBOARD_POOL_CERT and OUTBOARD_POOL_KEY belong together, and only one is set")]
    Half,
    /// A file cannot be used.
    #[error("{setting}: {} cannot be used: {reason}", path.display())]
    File {
        /// Which setting names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Key and certificate do not fit, or a fingerprint is none.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

fn file(setting: &'static str, path: &Path, reason: &dyn Display) -> SettingsError {
    SettingsError::File { setting, path: path.to_owned(), reason: reason.to_string() }
}

fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, SettingsError> {
    certificates_in(path).map_err(|error| file(setting, path, &error))
}

impl Settings {
    /// What the variables say.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Settings {
        let given = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let path = |name: &str| given(name).map(PathBuf::from);
        Settings {
            url: given(VARIABLE),
            fingerprint: given("OUTBOARD_POOL_FINGERPRINT"),
            authorities: path("OUTBOARD_POOL_CA"),
            certificate: path("OUTBOARD_POOL_CERT"),
            key: path("OUTBOARD_POOL_KEY"),
            token: given("OUTBOARD_POOL_TOKEN"),
            token_file: path("OUTBOARD_POOL_TOKEN_FILE"),
        }
    }

    /// What the environment says.
    pub fn from_env() -> Settings {
        Settings::of(|name| std::env::var(name).ok())
    }

    /// The way to the broker.
    ///
    /// # Errors
    ///
    /// If a setting is missing or cannot work.
    pub fn access(&self) -> Result<Access, SettingsError> {
        let urls: Urls = self.url.as_deref().ok_or(SettingsError::NoBroker)?.parse()?;
        let anchor = self.anchor(&urls)?;
        let own = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let secret = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| file("OUTBOARD_POOL_KEY", key, &error))?;
                Some((certificates("OUTBOARD_POOL_CERT", certificate)?, secret))
            }
            _ => return Err(SettingsError::Half),
        };
        Ok(Access::new(urls, anchor, own, self.token()?)?)
    }

    /// By what the broker is recognised: the narrower, if both are there.
    fn anchor(&self, urls: &Urls) -> Result<Anchor, SettingsError> {
        match (&self.fingerprint, &self.authorities) {
            (Some(text), _) => Ok(Anchor::Pinned(text.parse::<Fingerprint>()?)),
            (None, Some(path)) => Ok(Anchor::Authorities(certificates("OUTBOARD_POOL_CA", path)?)),
            (None, None) => Err(SettingsError::NothingToTrust(urls.clone())),
        }
    }

    fn token(&self) -> Result<Option<String>, SettingsError> {
        const SETTING: &str = "OUTBOARD_POOL_TOKEN_FILE";
        let Some(path) = self.token_file.as_ref().filter(|_| self.token.is_none()) else {
            return Ok(self.token.as_deref().map(|token| token.trim().to_owned()));
        };
        let text = std::fs::read_to_string(path).map_err(|error| file(SETTING, path, &error))?;
        let token = text.trim();
        if token.is_empty() || token.len() > 1024 || !token.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(file(SETTING, path, &"it is to hold one token and nothing else"));
        }
        Ok(Some(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_named() {
        let with = |set: &[(&str, &str)]| {
            let settings = Settings::of(|name| {
                set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
            });
            settings.access().err().map(|error| error.to_string()).unwrap_or_default()
        };
        let fingerprint = format!("sha256:{}", "0a".repeat(32));
        let pool = ("OUTBOARD_POOL", "pool1");
        let pinned = ("OUTBOARD_POOL_FINGERPRINT", fingerprint.as_str());
        assert_eq!(with(&[pool, pinned]), "");
        assert!(with(&[]).contains("no broker is named"));
        assert!(with(&[("OUTBOARD_POOL", "http://x")]).contains("no address of a broker"));
        assert!(with(&[pool]).contains("nothing by which to recognise"));
        assert!(with(&[pool, ("OUTBOARD_POOL_FINGERPRINT", "x")]).contains("not a fingerprint"));
        assert!(with(&[pool, ("OUTBOARD_POOL_CA", "/no/file")]).contains("OUTBOARD_POOL_CA"));
        assert!(with(&[pool, pinned, ("OUTBOARD_POOL_KEY", "/k")]).contains("belong together"));
        let missing = ("OUTBOARD_POOL_TOKEN_FILE", "/no/file");
        assert!(with(&[pool, pinned, missing]).contains("OUTBOARD_POOL_TOKEN_FILE"));
        // The token itself counts more.
        assert_eq!(with(&[pool, pinned, missing, ("OUTBOARD_POOL_TOKEN", "obt_1")]), "");
    }
}
