//! Where a broker is.

use std::fmt;
use std::str::FromStr;

/// The port of brokers unless another one is named.
pub const DEFAULT_PORT: u16 = 9472;

/// The address of a broker, `https://HOST[:PORT]`; the scheme may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// A name or an address, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A text is no address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of a broker; write https://HOST or https://HOST:PORT")]
pub struct BadUrl(String);

impl FromStr for Url {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Url, BadUrl> {
        let wrong = || BadUrl(text.to_owned());
        let rest = match text.split_once("://") {
            Some(("https", rest)) => rest.strip_suffix('/').unwrap_or(rest),
            Some(_) => return Err(wrong()),
            None => text,
        };
        let (host, port) = match rest.strip_prefix('[') {
            Some(inside) => {
                let (host, behind) = inside.split_once(']').ok_or_else(wrong)?;
                (host, behind.strip_prefix(':'))
            }
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse().map_err(|_| wrong()))?;
        let fine = |c: char| c.is_ascii_alphanumeric() || "._-:%".contains(c);
        if port == 0 || host.is_empty() || !host.chars().all(fine) {
            return Err(wrong());
        }
        Ok(Url { host: host.to_owned(), port })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "https://[{}]:{}", self.host, self.port),
            false => write!(f, "https://{}:{}", self.host, self.port),
        }
    }
}

/// The addresses of all brokers of a pool, with commas between them. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urls(pub(crate) Vec<Url>);

impl Urls {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl FromStr for Urls {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<Urls, BadUrl> {
        text.split(',').map(|url| url.trim().parse()).collect::<Result<_, _>>().map(Urls)
    }
}

impl fmt::Display for Urls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Url::to_string).collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_may_have_several_brokers() {
        let read = |text: &str| text.parse::<Urls>().map(|urls| urls.to_string());
        let three = "https://a:9472,https://[::1]:1,https://c:2";
        assert_eq!(read("a, https://[::1]:1,c:2"), Ok(three.to_owned()));
        assert_eq!("a".parse::<Urls>().map(|urls| urls.count()), Ok(1));
        for wrong in ["", "a,", ",a", "a,http://b", "a b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("https://pool1", "https://pool1:9472"),
            ("https://pool1:80/", "https://pool1:80"),
            ("pool1.example:80", "https://pool1.example:80"),
            ("https://[::1]:80", "https://[::1]:80"),
            ("[::1]", "https://[::1]:9472"),
        ] {
            assert_eq!(text.parse::<Url>().map(|url| url.to_string()), Ok(wanted.to_owned()));
        }
        for text in ["", "http://pool1", "https://", "https://a/b", "https://a:0", "a:b", "a b"] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }
}
