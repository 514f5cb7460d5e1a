//! All that a pool's client needs to know, in one string:
//! `outboard+pool://TOKEN@HOST:PORT[,HOST:PORT…]/sha256:HEX`.

use std::fmt;
use std::str::FromStr;

use outboard_broker_client::Urls;
use outboard_client::invitation::{self, Mistake};
use outboard_transport::tls::Fingerprint;

/// What such a string begins with.
pub(crate) const SCHEME: &str = "outboard+pool://";

/// The brokers of a pool, their certificate, and a token for them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Invitation {
    pub(crate) urls: Urls,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) token: String,
}

impl FromStr for Invitation {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Invitation, Mistake> {
        let (token, brokers, fingerprint) = invitation::parts(text, SCHEME)?;
        let urls = brokers.parse().map_err(|_| Mistake::Server)?;
        Ok(Invitation { urls, fingerprint, token: token.to_owned() })
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brokers = self.urls.to_string().replace("https://", "");
        write!(f, "{SCHEME}{}@{brokers}/{}", self.token, self.fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(brokers: &str) -> String {
        format!("{SCHEME}obt_{}@{brokers}/sha256:{}", "0a".repeat(32), "1b".repeat(32))
    }

    #[test]
    fn it_comes_back_as_it_was() {
        for brokers in ["pool1:9472", "[::1]:1", "a:9472,b:80"] {
            let read: Invitation = text(brokers).parse().ok().unwrap();
            assert_eq!(read.to_string(), text(brokers));
        }
        let short: Invitation = text("pool1").parse().ok().unwrap();
        assert_eq!(short.urls.to_string(), "https://pool1:9472");
    }

    #[test]
    fn whatever_is_missing_is_noticed() {
        let whole = text("pool1:9472");
        for length in 0..whole.len() {
            assert!(whole[..length].parse::<Invitation>().is_err(), "{length}");
        }
        for brokers in ["", "a b", "a:0", "a,", "http://a"] {
            assert!(text(brokers).parse::<Invitation>().is_err(), "{brokers}");
        }
        assert!(whole.replace("+pool", "").parse::<Invitation>().is_err());
    }
}
