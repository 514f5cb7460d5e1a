//! Parses a list of servers and their devices, as users write it.

mod files;
mod hosts;
mod ranks;

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use outboard_front::backend::{MAX_SERVERS, ServerId};
use outboard_transport::{AddressError, Endpoint};

use crate::invitation::Invitation;
pub use files::name_of_server;
pub(crate) use ranks::Choice;
pub use ranks::{ByRank, of_job};

/// The environment variable that holds [`Targets`]; `outboard run --server` sets it.
pub const VARIABLE: &str = "OUTBOARD_SERVER";

/// A server and the devices wanted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The server.
    pub address: Endpoint,
    /// Indices of its devices, in the order the program is to see them; empty for all.
    pub devices: Vec<u32>,
    /// How to know the server and be known there, if the list's file says it.
    pub invitation: Option<Arc<Invitation>>,
}

/// The servers of a program: `HOST[:PORT][/INDEX],…`, `unix:PATH[/INDEX],…`,
/// `vsock:host[:PORT][/INDEX],…`, `local[/INDEX],…`, `ssh://[USER@]HOST[:PORT][/INDEX],…` or `@FILE`. Each entry picks one device, and the program sees them in order; an entry without an index means all
/// devices of the server. HOST and INDEX can be ranges, `gpu[1-4]/0-3`; a file has such lists in
/// its lines. With `:by-rank` behind the list, each process of a job uses one device of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    servers: Vec<Target>,
    /// The server of each entry.
    entries: Vec<ServerId>,
    /// Whether a process uses one entry alone, and which.
    by_rank: Option<ByRank>,
    /// The file of each entry, if it has tokens.
    origins: Vec<Option<files::Origin>>,
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
    #[error(
        "`{index}` in `{entry}` is not a device index; `outboard devices` lists the devices of a server"
    )]
    Index {
        /// The entry.
        entry: String,
        /// Its part after the slash.
        index: String,
    },
    /// The same device is there twice, or a device beside all devices.
    #[error("the list of servers `{0}` names a device twice")]
    Twice(String),
    /// Brackets do not hold ranges of numbers.
    #[error(
        "`{range}` in `{entry}` is not a range of numbers; write gpu[1-4], gpu[1,3-4] or gpu1/0-3"
    )]
    Range {
        /// The entry.
        entry: String,
        /// What stands there instead.
        range: String,
    },
    /// Ranges stand for more entries than any program can use.
    #[error("`{0}` stands for more than 4096 devices; name fewer")]
    TooLong(String),
    /// A file of servers cannot be used.
    #[error("the file of servers `{path}` cannot be used: {why}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        why: String,
    },
    /// Nobody knows how long to wait for a file.
    #[error("`{seconds}` in `{entry}` is no number of seconds up to a day; write @FILE:wait=60")]
    Wait {
        /// The entry.
        entry: String,
        /// What stands there instead.
        seconds: String,
    },
    /// There are more servers than a program can have.
    #[error(
        "the list names more than {MAX_SERVERS} servers; a program can use the devices of so many"
    )]
    TooMany,
    /// Several servers where one is wanted.
    #[error("this is for one server, and `{0}` names several; name one of them with --server")]
    Several(String),
    /// Each process is to use one device, and nothing says which process this is.
    #[error(
        "`{suffix}` gives each process of a job one device, and nothing says which process this is: start it with mpirun, mpiexec or srun, which set one of {}", variables.join(", ")
    )]
    NoRank {
        /// What stands behind the list.
        suffix: &'static str,
        /// The variables that would say it.
        variables: &'static [&'static str],
    },
    /// What should say which process this is does not.
    #[error("{name} is `{value}`, which is no rank, so nobody knows this process's device")]
    BadRank {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// The server does not say how many devices it has.
    #[error(
        "{0} was asked how many devices it has, and did not say, so nobody knows this process's device"
    )]
    NotCounted(String),
    /// The list has changed, and has no such server any more.
    #[error("the list of servers is shorter than it was when the program began to use it")]
    Gone,
}

impl TargetError {
    /// Whether the list is fine, and nobody knows which device of it is this process's.
    pub(crate) fn is_about_a_rank(&self) -> bool {
        use TargetError::{BadRank, NoRank, NotCounted};
        matches!(self, NoRank { .. } | BadRank { .. } | NotCounted(_))
    }
}

impl Targets {
    /// The servers that the environment names.
    pub fn from_env() -> Result<Targets, TargetError> {
        Targets::of_variable(std::env::var_os(VARIABLE).as_deref())
    }

    /// The servers that a value of [`VARIABLE`] names; without one this machine, with all its
    /// devices.
    fn of_variable(value: Option<&OsStr>) -> Result<Targets, TargetError> {
        let Some(value) = value else { return "localhost".parse() };
        value
            .to_str()
            .ok_or_else(|| TargetError::NotText(value.to_string_lossy().into_owned()))?
            .parse()
    }

    /// The servers, in the order of their first entries. There is one at least.
    pub fn servers(&self) -> &[Target] {
        &self.servers
    }

    /// The server of each entry.
    pub fn entries(&self) -> &[ServerId] {
        &self.entries
    }

    /// The server, if it is the only one.
    pub fn one(&self) -> Result<Target, TargetError> {
        match self.servers.as_slice() {
            [one] => Ok(one.clone()),
            _ => Err(TargetError::Several(self.to_string())),
        }
    }

    /// Whether this machine's own devices are among them.
    pub fn has_local(&self) -> bool {
        self.servers.iter().any(|server| server.address == Endpoint::Local)
    }

    /// One server alone.
    pub(crate) fn alone(server: Target) -> Targets {
        let (servers, entries) = (vec![server], vec![ServerId::FIRST]);
        Targets { servers, entries, by_rank: None, origins: vec![None] }
    }

    /// The same with the server that offers this machine's own devices.
    pub fn with_local(self, at: &Endpoint) -> Targets {
        self.with_started(&Endpoint::Local, at, None)
    }

    /// The same with the server that was started for an address which nobody can connect to.
    pub fn with_started(
        mut self,
        named: &Endpoint,
        at: &Endpoint,
        invitation: Option<&Arc<Invitation>>,
    ) -> Targets {
        for server in self.servers.iter_mut().filter(|server| server.address == *named) {
            server.address = at.clone();
            server.invitation = invitation.cloned().or(server.invitation.take());
        }
        self
    }

    /// The server of a name.
    pub(crate) fn server(&self, id: ServerId) -> Result<&Target, TargetError> {
        self.servers.get(id.place()).ok_or(TargetError::Gone)
    }
}

impl FromStr for Targets {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Targets, TargetError> {
        let (list, by_rank) = ByRank::of_list(text);
        let mut targets =
            Targets { servers: Vec::new(), entries: Vec::new(), by_rank, origins: Vec::new() };
        for entry in hosts::entries(list)? {
            let (address, index) = parts(&entry.text)?;
            let invitation = entry.invitation.map(Arc::new);
            let place = targets.servers.iter().position(|server| server.address == address);
            match (place, index) {
                (None, index) => {
                    let devices = index.into_iter().collect();
                    targets.servers.push(Target { address, devices, invitation });
                }
                // All devices are all: nothing can stand beside them.
                (Some(place), Some(index)) if !targets.servers[place].devices.is_empty() => {
                    let devices = &mut targets.servers[place].devices;
                    if devices.contains(&index) {
                        return Err(TargetError::Twice(text.to_owned()));
                    }
                    devices.push(index);
                }
                _ => return Err(TargetError::Twice(text.to_owned())),
            }
            let place = place.unwrap_or(targets.servers.len() - 1);
            targets.entries.push(ServerId::new(place).ok_or(TargetError::TooMany)?);
            targets.origins.push(entry.origin);
        }
        Ok(targets)
    }
}

/// The server of an entry, and the index behind it, if there is one.
fn parts(entry: &str) -> Result<(Endpoint, Option<u32>), TargetError> {
    let is_index = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let scheme = entry.len() - Endpoint::behind_ssh(entry).unwrap_or(entry).len();
    let (address, index) = match entry.rsplit_once('/').filter(|(before, _)| before.len() >= scheme)
    {
        // A path has slashes of its own.
        Some((_, name)) if Endpoint::unix_path(entry).is_some() && !is_index(name) => (entry, None),
        Some((address, index)) => (address, Some(index)),
        None => (entry, None),
    };
    let read = |index: &str| {
        index
            .parse()
            .map_err(|_| TargetError::Index { entry: entry.to_owned(), index: index.to_owned() })
    };
    Ok((address.parse()?, index.map(read).transpose()?))
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        text.parse::<Targets>()?.one()
    }
}

impl Target {
    /// Has the loader bring what a connection to the server needs: the C library's modules that
    /// find names, and the library of adapters. It is for a thread of the program's, before threads
    /// of ours connect, which may not wait for the loader.
    pub fn load_what_it_needs(&self) {
        if let Endpoint::Tcp(address) = &self.address {
            // Whoever connects learns what is wrong with the name.
            let _ = outboard_transport::tcp::resolve(&address.to_string());
            outboard_transport::rdma::load();
        }
    }

    /// The entry of its device in this place; the whole server if no device is named.
    fn entry(&self, place: usize) -> String {
        self.devices
            .get(place)
            .map_or_else(|| self.address.to_string(), |index| format!("{}/{index}", self.address))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> =
            (0..self.devices.len().max(1)).map(|place| self.entry(place)).collect();
        f.write_str(&entries.join(","))
    }
}

impl fmt::Display for Targets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut given = vec![0; self.servers.len()];
        for (position, server) in self.entries.iter().map(|server| server.place()).enumerate() {
            let comma = if position == 0 { "" } else { "," };
            // The file stands for all its servers.
            if let Some(origin) = &self.origins[position] {
                if position == 0 || self.origins[position - 1].as_ref() != Some(origin) {
                    write!(f, "{comma}@{origin}")?;
                }
                given[server] += 1;
                continue;
            }
            write!(f, "{comma}{}", self.servers[server].entry(given[server]))?;
            given[server] += 1;
        }
        self.by_rank.map_or(Ok(()), |by_rank| by_rank.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    /// Addresses with the devices wanted, and the place of each entry's server.
    fn shown(targets: &Targets) -> (Vec<(String, Vec<u32>)>, Vec<usize>) {
        let servers = targets
            .servers
            .iter()
            .map(|server| (server.address.to_string(), server.devices.clone()));
        (servers.collect(), targets.entries.iter().map(|server| server.place()).collect())
    }

    #[test]
    fn a_variable_names_a_server_or_this_machine() {
        let named = |bytes: &[u8]| Targets::of_variable(Some(OsStr::from_bytes(bytes)));
        assert_eq!(
            Targets::of_variable(None).unwrap().servers[0].address.to_string(),
            "localhost:9470"
        );
        assert_eq!(named(b"gpu1/1"), "gpu1/1".parse());
        // A list with a mistake never means this machine.
        assert_eq!(named(b""), Err(TargetError::Empty(String::new())));
        let error = named(b"gpu\xff1").unwrap_err();
        assert!(error.to_string().contains("`gpu\u{fffd}1` is not UTF-8"), "{error}");
    }

    #[test]
    fn lists_are_understood_and_written_back() {
        for (text, servers, entries) in [
            ("gpu1", vec![("gpu1:9470", vec![])], vec![0]),
            ("gpu1:80", vec![("gpu1:80", vec![])], vec![0]),
            ("gpu1/0", vec![("gpu1:9470", vec![0])], vec![0]),
            ("gpu1:80/2, gpu1:80/0", vec![("gpu1:80", vec![2, 0])], vec![0, 0]),
            ("[::1]:80/1", vec![("[::1]:80", vec![1])], vec![0]),
            ("unix:/run/a.sock", vec![("unix:/run/a.sock", vec![])], vec![0]),
            (
                "unix:/run/a.sock/1,unix:/run/a.sock/0",
                vec![("unix:/run/a.sock", vec![1, 0])],
                vec![0, 0],
            ),
            (
                "ssh://me@gpu1:22/1,ssh://gpu2,gpu2",
                vec![("ssh://me@gpu1:22", vec![1]), ("ssh://gpu2", vec![]), ("gpu2:9470", vec![])],
                vec![0, 1, 2],
            ),
            (
                "vsock:host/0,gpu2/1,vsock:2:9470/1",
                vec![("vsock:host:9470", vec![0, 1]), ("gpu2:9470", vec![1])],
                vec![0, 1, 0],
            ),
            ("gpu1/1,gpu1:9470/0", vec![("gpu1:9470", vec![1, 0])], vec![0, 0]),
            ("gpu1,gpu2", vec![("gpu1:9470", vec![]), ("gpu2:9470", vec![])], vec![0, 1]),
            (
                "gpu[1-2]:80/0-1",
                vec![("gpu1:80", vec![0, 1]), ("gpu2:80", vec![0, 1])],
                vec![0, 0, 1, 1],
            ),
            (
                "gpu1/0,gpu2/0,gpu1/1",
                vec![("gpu1:9470", vec![0, 1]), ("gpu2:9470", vec![0])],
                vec![0, 1, 0],
            ),
            (
                "gpu1/1,gpu2:by-rank",
                vec![("gpu1:9470", vec![1]), ("gpu2:9470", vec![])],
                vec![0, 1],
            ),
            ("unix:/s/1 :by-local-rank", vec![("unix:/s", vec![1])], vec![0]),
            (
                "unix:/run/a.sock,gpu1/3",
                vec![("unix:/run/a.sock", vec![]), ("gpu1:9470", vec![3])],
                vec![0, 1],
            ),
        ] {
            let targets: Targets = text.parse().unwrap();
            let servers = servers
                .into_iter()
                .map(|(address, devices)| (address.to_owned(), devices))
                .collect();
            assert_eq!(shown(&targets), (servers, entries), "{text}");
            assert_eq!(targets.to_string().parse(), Ok(targets));
        }
    }

    #[test]
    fn a_server_is_put_in_for_this_machine_s_own_devices() {
        let targets: Targets = "gpu1/0,local/[1,0],local:80".parse().unwrap();
        assert!(targets.has_local() && !"gpu1,local:80".parse::<Targets>().unwrap().has_local());
        let put_in = targets.with_local(&"unix:/run/x/socket".parse().unwrap());
        let wanted = "gpu1:9470/0,unix:/run/x/socket/1,unix:/run/x/socket/0,local:80";
        assert_eq!((put_in.to_string().as_str(), put_in.has_local()), (wanted, false));
        assert!("local,local/0".parse::<Targets>().is_err());
    }

    #[test]
    fn others_are_refused_with_a_reason() {
        let many: Vec<String> = (0..=MAX_SERVERS).map(|number| format!("gpu{number}")).collect();
        for (text, reason) in [
            ("", "empty entry"),
            ("gpu1,", "empty entry"),
            ("gpu[1-2],gpu2/0", "twice"),
            ("gpu[2-1]", "not a range"),
            ("gpu1/x", "not a device index"),
            ("gpu1/-1", "not a device index"),
            ("gpu1/", "not a device index"),
            ("gpu1/0,gpu1/0", "twice"),
            ("gpu1,gpu1", "twice"),
            ("gpu1,gpu1/0", "twice"),
            ("gpu1/0,gpu1", "twice"),
            ("gpu1/0,gpu2,gpu1/0", "twice"),
            ("/0", "names no host"),
            ("unix:a", "unix:/PATH"),
            ("vsock:host,vsock:2:9470/0", "twice"),
            ("vsock:any/0", "where a server listens"),
            ("vsock:gpu1", "names no machine that vsock leads to"),
            ("ssh://", "ssh://[USER@]HOST"),
            ("ssh:///0", "ssh://[USER@]HOST"),
            ("ssh://gpu1/x", "not a device index"),
            (":by-rank", "empty entry"),
            ("gpu1:by-rank,gpu2", "by-rank"),
            (&many.join(","), "more than 64 servers"),
        ] {
            let error = text.parse::<Targets>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(many[1..].join(",").parse::<Targets>().is_ok());
    }
}
