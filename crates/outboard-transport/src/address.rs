//! Server addresses as people write them.

mod vsock;

use std::fmt;
use std::str::FromStr;

pub use vsock::VsockAddress;

/// The port of a server that names none.
pub const DEFAULT_PORT: u16 = 9470;

/// `HOST`, `HOST:PORT`, `[IPV6]`, `[IPV6]:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    /// A name or a numeric address, without brackets.
    pub host: String,
    /// The port, [`DEFAULT_PORT`] if none was given.
    pub port: u16,
}

/// An address that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is no host.
    #[error("`{0}` names no host; write HOST, HOST:PORT or [IPV6]:PORT")]
    NoHost(String),
    /// The port is not a number up to 65535.
    #[error("`{port}` in `{address}` is not a port; ports are numbers from 1 to 65535")]
    Port {
        /// The whole address.
        address: String,
        /// The part that should be a port.
        port: String,
    },
    /// The path of a Unix socket is relative, or missing.
    #[error("`{0}` names no socket; write unix:/PATH")]
    Path(String),
    /// An IPv6 address lacks its brackets, or a bracket its partner.
    #[error("`{0}` is ambiguous; write IPv6 addresses in brackets, as in [::1]:{DEFAULT_PORT}")]
    Brackets(String),
    /// No machine that vsock leads to.
    #[error(
        "`{0}` names no machine that vsock leads to; write vsock:host[:PORT], or vsock:CID[:PORT] with a machine's number"
    )]
    Vsock(String),
    /// The port is no number that vsock has.
    #[error(
        "`{port}` in `{address}` is not a port of vsock; ports are numbers from 1 to 4294967294"
    )]
    VsockPort {
        /// The whole address.
        address: String,
        /// The part that should be a port.
        port: String,
    },
    /// All machines, where one is wanted.
    #[error(
        "`{0}` is where a server listens; write vsock:host[:PORT] to connect to the host's server"
    )]
    VsockAny(String),
    /// Nothing that ssh could connect to.
    #[error(
        "`{0}` names no machine that ssh could lead to; write ssh://[USER@]HOST[:PORT], with names of letters, digits, dots and dashes; \
         what else ssh needs belongs into its configuration"
    )]
    Ssh(String),
}

/// The host without brackets, and what stands behind the colon, if there is one.
fn host_and_port(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    match text.strip_prefix('[') {
        Some(rest) => {
            let Some((host, after)) = rest.split_once(']') else {
                return Err(AddressError::Brackets(text.to_owned()));
            };
            match after.strip_prefix(':') {
                None if after.is_empty() => Ok((host, None)),
                None => Err(AddressError::Brackets(text.to_owned())),
                port => Ok((host, port)),
            }
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => Err(AddressError::Brackets(text.to_owned())),
            Some((host, port)) => Ok((host, Some(port))),
            None => Ok((text, None)),
        },
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let (host, port) = host_and_port(text)?;
        if host.is_empty() {
            return Err(AddressError::NoHost(text.to_owned()));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => match port.parse() {
                Ok(number) if number != 0 => number,
                _ => {
                    return Err(AddressError::Port {
                        address: text.to_owned(),
                        port: port.to_owned(),
                    });
                }
            },
        };
        Ok(Address { host: host.to_owned(), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Where a server is: [`Address`], `unix:PATH`, `vsock:CID[:PORT]`, `local` or
/// `ssh://[USER@]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Over the network.
    Tcp(Address),
    /// On this machine, at a path.
    Unix(String),
    /// On the host of this virtual machine, or in a virtual machine of this host.
    Vsock(VsockAddress),
    /// This machine's own devices, for which `outboard run` starts a private server.
    Local,
    /// A machine that ssh leads to, on which `outboard run` starts a server: what stands behind
    /// `ssh://`.
    Ssh(String),
}

/// [`Endpoint::Local`] as people write it.
const LOCAL: &str = "local";

/// What the address of a Unix socket begins with.
const UNIX: &str = "unix:";

/// What the address of a machine begins with that ssh leads to.
const SSH: &str = "ssh://";

impl Endpoint {
    /// What stands behind `ssh://`, if an address begins so.
    pub fn behind_ssh(address: &str) -> Option<&str> {
        address.strip_prefix(SSH)
    }

    /// The path of a Unix socket, if an address is that of one.
    pub fn unix_path(address: &str) -> Option<&str> {
        address.strip_prefix(UNIX)
    }
}

impl FromStr for Endpoint {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Endpoint, AddressError> {
        match Endpoint::unix_path(text) {
            None if text == LOCAL => Ok(Endpoint::Local),
            Some(path) if path.starts_with('/') => Ok(Endpoint::Unix(path.to_owned())),
            Some(_) => Err(AddressError::Path(text.to_owned())),
            None if let Some(machine) = Endpoint::behind_ssh(text) => ssh(text, machine),
            None if let Some(address) = VsockAddress::parse(text) => match address? {
                address if address.is_one_machine() => Ok(Endpoint::Vsock(address)),
                _ => Err(AddressError::VsockAny(text.to_owned())),
            },
            None => text.parse().map(Endpoint::Tcp),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => address.fmt(f),
            Endpoint::Unix(path) => write!(f, "{UNIX}{path}"),
            Endpoint::Vsock(address) => address.fmt(f),
            Endpoint::Local => f.write_str(LOCAL),
            Endpoint::Ssh(machine) => write!(f, "{SSH}{machine}"),
        }
    }
}

/// A machine as ssh knows it. No letter of its names means anything to a shell or in a URI, and
/// none looks like an option.
fn ssh(text: &str, machine: &str) -> Result<Endpoint, AddressError> {
    let is_name = |name: &str, more: &str| {
        !name.is_empty()
            && !name.starts_with('-')
            && name.chars().all(|letter| letter.is_ascii_alphanumeric() || more.contains(letter))
    };
    let (user, place) = match machine.rsplit_once('@') {
        Some((user, place)) => (Some(user), place),
        None => (None, machine),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|number| number != 0);
    let is_right = host_and_port(place).is_ok_and(|(host, port)| {
        is_name(host, if place.starts_with('[') { ":." } else { "._-" })
            && user.is_none_or(|user| is_name(user, "._-+"))
            && port.is_none_or(is_port)
    });
    if !is_right {
        return Err(AddressError::Ssh(text.to_owned()));
    }
    Ok(Endpoint::Ssh(machine.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_understood() {
        for (text, host, port) in [
            ("gpu1", "gpu1", DEFAULT_PORT),
            ("gpu1:80", "gpu1", 80),
            ("10.0.0.1:9999", "10.0.0.1", 9999),
            ("[::1]", "::1", DEFAULT_PORT),
            ("[::1]:9470", "::1", 9470),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{text}");
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn a_socket_is_named_by_its_path() {
        let endpoint: Endpoint = "unix:/run/outboard/9470.sock".parse().unwrap();
        assert_eq!(endpoint, Endpoint::Unix("/run/outboard/9470.sock".to_owned()));
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        assert_eq!("gpu1".parse(), Ok(Endpoint::Tcp("gpu1:9470".parse().unwrap())));
        assert_eq!("local".parse(), Ok(Endpoint::Local));
        assert_eq!("local:1".parse(), Ok(Endpoint::Tcp("local:1".parse().unwrap())), "a host");
        assert_eq!(Endpoint::Local.to_string().parse(), Ok(Endpoint::Local));
        for text in ["unix:", "unix:run/x"] {
            assert!(
                text.parse::<Endpoint>().unwrap_err().to_string().contains("unix:/PATH"),
                "{text}"
            );
        }
    }

    #[test]
    fn machines_behind_ssh_are_named_as_ssh_does() {
        for text in ["ssh://gpu1", "ssh://me@gpu-1.lab:2222", "ssh://me.x@[::1]:22", "ssh://a_b"] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint, Endpoint::Ssh(text[6..].to_owned()), "{text}");
            assert_eq!(endpoint.to_string(), text);
        }
        for text in [
            "ssh://",
            "ssh://@gpu1",
            "ssh://me@",
            "ssh://-oProxyCommand=x",
            "ssh://-l@gpu1",
            "ssh://gpu1:0",
            "ssh://gpu1:",
            "ssh://gpu1:x",
            "ssh://gpu 1",
            "ssh://gpu1;x",
            "ssh://gpu1/x",
            "ssh://$(x)",
            "ssh://a:b@gpu1",
            "ssh://%h",
            "ssh://[::1",
            "ssh://::1",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains("ssh://[USER@]HOST"), "{text}: {error}");
        }
    }

    #[test]
    fn others_are_refused_with_a_hint() {
        for (text, hint) in [
            ("", "names no host"),
            (":9470", "names no host"),
            ("gpu1:", "is not a port"),
            ("gpu1:0", "is not a port"),
            ("gpu1:65536", "is not a port"),
            ("gpu1:http", "is not a port"),
            ("::1", "brackets"),
            ("[::1", "brackets"),
            ("[::1]x", "brackets"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
