//! Which server and which of its devices a program is to use, as people write it.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;

use outboard_transport::{AddressError, Endpoint};

/// The environment variable that holds a [`Target`]; `outboard run --server` sets it.
pub const VARIABLE: &str = "OUTBOARD_SERVER";

/// A server and the devices wanted of it: `HOST[:PORT][/INDEX],…` or `unix:PATH[/INDEX],…`. Each entry picks one device, in order; an entry
/// without an index means all devices of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub address: Endpoint,
    /// Indices of its devices, in the order the program is to see them; empty for all.
    pub devices: Vec<u32>,
}

/// A list of servers that cannot be understood or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It is not text.
    #[error("`{0}` is not UTF-8; write HOST[:PORT][/INDEX],…")]
    NotText(String),
    /// Nothing is in the list, or nothing between two commas.
    #[error("the list of servers `{0}` has an empty entry; write HOST[:PORT][/INDEX],…")]
    Empty(String),
    /// An address is wrong.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The part after the slash is not a device index.
    #[error("`{index}` in `{entry}` is not a device index; `outboard devices` lists the devices of a server")]
    Index {
        /// The entry.
        entry: String,
        /// Its part after the slash.
        index: String,
    },
    /// The same device is there twice, or a device beside all devices.
    #[error("the list of servers `{0}` names a device twice")]
    Twice(String),
    /// More than one server.
    #[error(
        "the list names two servers, {first} and {second}; a program can use the devices of one server only, so far"
    )]
    SeveralServers {
        /// The first server.
        first: Endpoint,
        /// The one that differs.
        second: Endpoint,
    },
}

impl Target {
    /// The target that the environment names.
    pub fn from_env() -> Result<Target, TargetError> {
        Target::of_variable(std::env::var_os(VARIABLE).as_deref())
    }

    /// The target that a value of [`VARIABLE`] names; without one this machine, with all its devices.
    fn of_variable(value: Option<&OsStr>) -> Result<Target, TargetError> {
        let Some(value) = value else { return "localhost".parse() };
        value.to_str().ok_or_else(|| TargetError::NotText(value.to_string_lossy().into_owned()))?.parse()
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let mut server: Option<Endpoint> = None;
        let mut devices = Vec::new();
        let mut all = false;
        for entry in text.split(',').map(str::trim) {
            if entry.is_empty() {
                return Err(TargetError::Empty(text.to_owned()));
            }
            let is_index = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let (address, index) = match entry.rsplit_once('/') {
                // A path has slashes of its own.
                Some((_, name)) if Endpoint::unix_path(entry).is_some() && !is_index(name) => (entry, None),
                Some((address, index)) => (address, Some(index)),
                None => (entry, None),
            };
            let address: Endpoint = address.parse()?;
            match &server {
                Some(first) if *first != address => {
                    return Err(TargetError::SeveralServers { first: first.clone(), second: address });
                }
                _ => server = Some(address),
            }
            let index = index.map(|index| {
                index.parse().map_err(|_| TargetError::Index { entry: entry.to_owned(), index: index.to_owned() })
            });
            // All devices are all: nothing can stand beside them.
            let twice = all || (index.is_none() && !devices.is_empty());
            match index.transpose()? {
                Some(index) if !twice && !devices.contains(&index) => devices.push(index),
                None if !twice => all = true,
                _ => return Err(TargetError::Twice(text.to_owned())),
            }
        }
        let address = server.ok_or_else(|| TargetError::Empty(text.to_owned()))?;
        Ok(Target { address, devices })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.devices.is_empty() {
            return self.address.fmt(f);
        }
        for (position, index) in self.devices.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{}/{index}", self.address)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn a_variable_names_a_server_or_this_machine() {
        let named = |bytes: &[u8]| Target::of_variable(Some(OsStr::from_bytes(bytes)));
        assert_eq!(Target::of_variable(None).unwrap().address.to_string(), "localhost:9470");
        assert_eq!(named(b"gpu1/1"), "gpu1/1".parse());
        // What cannot be understood never means this machine.
        assert_eq!(named(b""), Err(TargetError::Empty(String::new())));
        let error = named(b"gpu\xff1").unwrap_err();
        assert!(error.to_string().contains("`gpu\u{fffd}1` is not UTF-8"), "{error}");
    }

    #[test]
    fn lists_are_understood_and_written_back() {
        for (text, address, devices) in [
            ("gpu1", "gpu1:9470", vec![]),
            ("gpu1:80", "gpu1:80", vec![]),
            ("gpu1/0", "gpu1:9470", vec![0]),
            ("gpu1:80/2, gpu1:80/0", "gpu1:80", vec![2, 0]),
            ("[::1]:80/1", "[::1]:80", vec![1]),
            ("unix:/run/a.sock", "unix:/run/a.sock", vec![]),
            ("unix:/run/a.sock/1,unix:/run/a.sock/0", "unix:/run/a.sock", vec![1, 0]),
            ("gpu1/1,gpu1:9470/0", "gpu1:9470", vec![1, 0]),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.address.to_string().as_str(), &target.devices), (address, &devices), "{text}");
            assert_eq!(target.to_string().parse(), Ok(target));
        }
    }

    #[test]
    fn others_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "empty entry"),
            ("gpu1,", "empty entry"),
            ("gpu1/x", "not a device index"),
            ("gpu1/-1", "not a device index"),
            ("gpu1/", "not a device index"),
            ("gpu1/0,gpu1/0", "twice"),
            ("gpu1,gpu1", "twice"),
            ("gpu1,gpu1/0", "twice"),
            ("gpu1/0,gpu1", "twice"),
            ("gpu1/0,gpu2/0", "two servers"),
            ("/0", "names no host"),
            ("unix:/run/a.sock,gpu1", "two servers"),
            ("unix:a", "unix:/PATH"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
