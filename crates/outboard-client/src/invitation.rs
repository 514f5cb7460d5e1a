//! All that a client needs to know, in one string: `outboard://TOKEN@HOST:PORT/sha256:HEX`.
//!
//! No letter of it means anything to a shell (brackets around an IPv6 address excepted). Token and
//! fingerprint have a known length, so that a string that was not copied as a whole is found out.

use std::fmt;
use std::str::FromStr;

use outboard_transport::Endpoint;
use outboard_transport::tls::Fingerprint;

/// What such a string begins with.
pub const SCHEME: &str = "outboard://";
/// Hexadecimal digits of a token, behind `obt_`.
const DIGITS: usize = 64;

/// An address, the certificate of the server there, and a token for it.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Where the server is.
    pub server: Endpoint,
    /// Its certificate's.
    pub fingerprint: Fingerprint,
    /// What it knows the client by.
    pub token: String,
}

/// Why a string is refused. It quotes no part of the string: what looks like an address may be a
/// token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// It is something else.
    #[error("it does not begin with {0}")]
    Scheme(&'static str),
    /// It has no token.
    #[error("its token is not `obt_` with {DIGITS} digits and an @ behind it")]
    Token,
    /// It has no fingerprint.
    #[error("its fingerprint is not `/sha256:` with 64 digits, at the end")]
    Fingerprint,
    /// It has no address.
    #[error("between @ and / is no HOST:PORT")]
    Server,
}

/// The token, the place and the fingerprint of `SCHEMETOKEN@PLACE/sha256:HEX`.
///
/// # Errors
/// The [`Mistake`], if it is no such string.
pub fn parts<'a>(
    text: &'a str,
    scheme: &'static str,
) -> Result<(&'a str, &'a str, Fingerprint), Mistake> {
    let rest = text.trim().strip_prefix(scheme).ok_or(Mistake::Scheme(scheme))?;
    let (token, rest) = rest.split_once('@').ok_or(Mistake::Token)?;
    let digits = token.strip_prefix("obt_").ok_or(Mistake::Token)?;
    if digits.len() != DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Mistake::Token);
    }
    let (place, fingerprint) = rest.rsplit_once('/').ok_or(Mistake::Fingerprint)?;
    Ok((token, place, fingerprint.parse().map_err(|_| Mistake::Fingerprint)?))
}

/// Whether an address can stand in such a string.
fn is_address(server: &Endpoint) -> bool {
    match server {
        Endpoint::Tcp(address) => {
            address.host.chars().all(|letter| letter.is_alphanumeric() || "._-:%".contains(letter))
        }
        Endpoint::Vsock(_) => true,
        Endpoint::Local | Endpoint::Ssh(_) => false,
        // What a list of servers, or a file of settings, takes for something else.
        Endpoint::Unix(path) => !path.contains(|letter: char| {
            letter.is_whitespace() || letter.is_control() || ",;@\"'`[]{}<>|\\$".contains(letter)
        }),
    }
}

/// An address as people write it, if it can stand in such a string.
pub fn address(text: &str) -> Option<Endpoint> {
    text.parse().ok().filter(is_address)
}

impl FromStr for Invitation {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Invitation, Mistake> {
        let (token, server, fingerprint) = parts(text, SCHEME)?;
        let server = address(server).ok_or(Mistake::Server)?;
        Ok(Invitation { server, fingerprint, token: token.to_owned() })
    }
}

/// The token is nobody else's business.
impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}...@{}/{}", self.server, self.fingerprint)
    }
}

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@{}/{}", self.token, self.server, self.fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(server: &str) -> String {
        format!("outboard://obt_{}@{server}/sha256:{}", "0a".repeat(32), "1b".repeat(32))
    }

    fn parse(text: &str) -> Result<Invitation, Mistake> {
        text.parse()
    }

    #[test]
    fn it_comes_back_as_it_was() {
        for server in [
            "gpu1:9470",
            "gpu-1.example.org:1",
            "[fe80::1%eth0]:9470",
            "unix:/run/outboard/1.sock",
            "vsock:host:9470",
        ] {
            let text = text(server);
            let invitation = parse(&format!(" {text}\r\n")).ok().unwrap();
            assert_eq!(
                (invitation.server.to_string(), invitation.to_string()),
                (server.to_owned(), text)
            );
        }
        assert!(
            parse(&text("gpu1"))
                .is_ok_and(|invitation| invitation.server.to_string() == "gpu1:9470")
        );
    }

    #[test]
    fn whatever_is_missing_is_noticed() {
        let whole = text("gpu1:9470");
        for length in 0..whole.len() {
            assert!(parse(&whole[..length]).is_err(), "{length}");
        }
        let fault = |text: &str| parse(text).err().unwrap();
        assert_eq!(fault(&whole[1..]), Mistake::Scheme(SCHEME));
        assert_eq!(fault(&whole.replace("a0", "a")), Mistake::Token);
        assert_eq!(fault(&whole.replace('@', "/")), Mistake::Token);
        assert_eq!(fault(&whole.replace("b1", "bx")), Mistake::Fingerprint);
        for server in [
            "",
            ":1",
            "gpu1:0",
            "gpu1:x",
            "gpu 1",
            "gpu1/0",
            "a@b",
            "a\u{1b}b",
            "\"",
            "::1",
            "unix:run",
            "unix:/tmp/x,ssh://other",
            "unix:/tmp/a@b",
            "unix:/tmp/[1-9]",
            "unix:/tmp/$x",
        ] {
            assert_eq!(fault(&text(server)), Mistake::Server, "{server}");
        }
    }
}
