//! Settings of the client: the table `[client]`.
//!
//! The client library lives in the program's process, which may have no home folder, another user
//! or its own file system; it reads environment variables only, and no files. A key therefore
//! represents a variable, and the commands set those that are not set yet.

use std::ffi::OsString;
use std::path::PathBuf;

use outboard_broker_client::Urls;
use outboard_client::link::security::LOGIN_OF;
use outboard_client::target::{Targets, VARIABLE};
use outboard_pool::words::ServerName;
use outboard_transport::tls::Fingerprint;

use super::context::{self, InForce};
use super::file::{Setting, Settings};
use crate::library::settings as library;
use crate::serve::peers::network;

/// Names the server.
pub(crate) const SERVER: &str = VARIABLE;

/// A key of `[client]`.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// The variable that it represents.
    pub(crate) variable: &'static str,
    /// What it is.
    pub(crate) meaning: &'static str,
    /// Whether it chooses the server, or says how client and server authenticate each other: of
    /// another server it means nothing.
    pub(crate) is_of_a_server: bool,
    /// Returns the mistake in a value.
    pub(crate) check: fn(&str) -> Result<(), String>,
}

impl Key {
    /// Whether it names a file.
    pub(crate) fn is_file(&self) -> bool {
        FILES.contains(&self.name)
    }
}

/// All keys.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: context::KEY,
        variable: context::VARIABLE,
        meaning: "The context in use, a table `[contexts.NAME]`; `default` is the table `[client]` by itself.",
        is_of_a_server: false,
        check: context::check_name,
    },
    Key {
        name: "server",
        variable: VARIABLE,
        meaning: "The servers and their devices, HOST[:PORT][/INDEX],…, unix:PATH[/INDEX],…, vsock:host[:PORT][/INDEX],…, local[/INDEX], ssh://[USER@]HOST[:PORT][/INDEX] or @FILE",
        is_of_a_server: true,
        check: |text| text.parse::<Targets>().map(drop).map_err(|error| error.to_string()),
    },
    Key {
        name: "transport",
        variable: "OUTBOARD_TRANSPORT",
        meaning: "Use only this transport: `ivshmem`, `rdma`, `shm`, `tcp` or `vsock`.",
        is_of_a_server: false,
        check: |text| one_of(text, &["ivshmem", "rdma", "shm", "tcp", "vsock"]),
    },
    Key {
        name: "ivshmem",
        variable: "OUTBOARD_IVSHMEM",
        meaning: "The memory that this virtual machine and its host share, /sys/bus/pci/devices/…/resource2, or `off`. Without it the first that the program may open.",
        is_of_a_server: false,
        check: |_| Ok(()),
    },
    Key {
        name: "rdma-device",
        variable: "OUTBOARD_RDMA_DEVICE",
        meaning: "The RDMA adapters of this machine that may be used, NAME,… as `rdma link` shows them. Without it all.",
        is_of_a_server: false,
        check: |_| Ok(()),
    },
    Key {
        name: "rdma-network",
        variable: "OUTBOARD_RDMA_NETWORK",
        meaning: "The networks in which their addresses are: 10.1.0.0/16,… Without it any.",
        is_of_a_server: false,
        check: |text| text.split(',').try_for_each(|item| network(item).map(drop)),
    },
    Key {
        name: "local-driver",
        variable: "OUTBOARD_LOCAL_DRIVER",
        meaning: "The driver library of `local`, as `outboard serve --driver` takes it: `nvidia`, `cpu` or a path. Without it NVIDIA's.",
        is_of_a_server: false,
        check: |_| Ok(()),
    },
    Key {
        name: "ssh-driver",
        variable: "OUTBOARD_SSH_DRIVER",
        meaning: "The driver library of servers that `ssh://` starts, as `outboard serve --driver` takes it: `nvidia`, `cpu` or a path there. Without it NVIDIA's.",
        is_of_a_server: false,
        check: |_| Ok(()),
    },
    Key {
        name: "ssh-direct",
        variable: "OUTBOARD_SSH_DIRECT",
        meaning: "Whether servers that `ssh://` starts may listen at the address at which ssh has reached their machine, so that programs reach them without ssh: `auto` or `off`; the default is auto.",
        is_of_a_server: false,
        check: |text| one_of(text, &["auto", "off"]),
    },
    Key {
        name: "tls",
        variable: "OUTBOARD_TLS",
        meaning: "Whether the connection is encrypted: `auto`, `on` or `off`.",
        is_of_a_server: true,
        check: |text| one_of(text, &["auto", "on", "off"]),
    },
    Key {
        name: "tls-fingerprint",
        variable: "OUTBOARD_TLS_FINGERPRINT",
        meaning: "SHA-256 of the server's certificate.",
        is_of_a_server: true,
        check: |text| text.parse::<Fingerprint>().map(drop).map_err(|error| error.to_string()),
    },
    Key {
        name: "tls-ca",
        variable: "OUTBOARD_TLS_CA",
        meaning: "The file of authorities that sign certificates of servers.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "tls-cert",
        variable: "OUTBOARD_TLS_CERT",
        meaning: "The file of the client's own certificate.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "tls-key",
        variable: "OUTBOARD_TLS_KEY",
        meaning: "The file of its key.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "token-file",
        variable: "OUTBOARD_TOKEN_FILE",
        meaning: "The file with the client's token.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "lease",
        variable: "OUTBOARD_LEASE",
        meaning: "The file with the client's lease of a pool.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "lease-key",
        variable: "OUTBOARD_LEASE_KEY",
        meaning: "The file of the key to which the lease is bound, Ed25519 in PEM.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "pool-name",
        variable: "OUTBOARD_POOL_NAME",
        meaning: "The server's name in its pool, if it is not the lease's only server and its address does not tell.",
        is_of_a_server: true,
        check: |text| text.parse::<ServerName>().map(drop).map_err(|error| error.to_string()),
    },
    Key {
        name: "pool",
        variable: outboard_broker_client::VARIABLE,
        meaning: "The broker of the pool, https://HOST[:PORT], or all of them with commas between them.",
        is_of_a_server: true,
        check: |text| text.parse::<Urls>().map(drop).map_err(|error| error.to_string()),
    },
    Key {
        name: "pool-fingerprint",
        variable: "OUTBOARD_POOL_FINGERPRINT",
        meaning: "SHA-256 of the broker's certificate.",
        is_of_a_server: true,
        check: |text| text.parse::<Fingerprint>().map(drop).map_err(|error| error.to_string()),
    },
    Key {
        name: "pool-ca",
        variable: "OUTBOARD_POOL_CA",
        meaning: "The file of authorities that sign certificates of brokers.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "pool-token-file",
        variable: "OUTBOARD_POOL_TOKEN_FILE",
        meaning: "The file with the client's token for the broker.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "pool-cert",
        variable: "OUTBOARD_POOL_CERT",
        meaning: "The file of the client's own certificate for the broker.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "pool-key",
        variable: "OUTBOARD_POOL_KEY",
        meaning: "The file of its key.",
        is_of_a_server: true,
        check: |_| Ok(()),
    },
    Key {
        name: "queue-timeout",
        variable: "OUTBOARD_QUEUE_TIMEOUT",
        meaning: "For how many seconds a program may wait in a server's queue; 0 does not wait.",
        is_of_a_server: false,
        check: |text| {
            text.parse::<f64>().map(drop).map_err(|_| "it is a number of seconds".to_owned())
        },
    },
    Key {
        name: "reconnect",
        variable: "OUTBOARD_RECONNECT",
        meaning: "For how many seconds a program tries to resume its session after the connection was lost, if the server keeps the session for as long; 0 does not try.",
        is_of_a_server: false,
        check: number,
    },
    Key {
        name: "nccl",
        variable: "OUTBOARD_NCCL",
        meaning: "Whether programs get Outboard's libnccl.so.2, whose collectives run on the servers, in place of their own: `on` or `off`; the default is on.",
        is_of_a_server: false,
        check: |text| one_of(text, &["on", "off"]),
    },
    Key {
        name: "cufile",
        variable: "OUTBOARD_CUFILE",
        meaning: "Whether programs get Outboard's libcufile.so.0, which moves files to the servers' devices, in place of their own: `on` or `off`; the default is on.",
        is_of_a_server: false,
        check: |text| one_of(text, &["on", "off"]),
    },
    Key {
        name: "files",
        variable: "OUTBOARD_FILES",
        meaning: "Whether a server that shares a file reads it when the program copies a mapping of the file to a device, or a tensor that safetensors has copied out of one, and whether loaders that ask are told that files reach devices directly: `mapped` or `off`; the default is off.",
        is_of_a_server: false,
        check: |text| one_of(text, &["mapped", "off"]),
    },
    Key {
        name: "nccl-init-timeout",
        variable: "OUTBOARD_NCCL_INIT_TIMEOUT",
        meaning: "For how many seconds a rank waits for the others of a new communicator; 0 waits without end; the default is 600.",
        is_of_a_server: false,
        check: number,
    },
    Key {
        name: "library-from-server",
        variable: library::WHEN,
        meaning: "Whether programs get the client library that the server hands out, if a release key has signed it: `off`, `differing` (if the server is of another release than the command) or `always`; the default is off.",
        is_of_a_server: false,
        check: |text| one_of(text, &library::WHENS),
    },
    Key {
        name: "oldest-library",
        variable: library::OLDEST,
        meaning: "The oldest release whose library is taken from a server; the default is the command's own.",
        is_of_a_server: false,
        check: |text| {
            text.parse::<semver::Version>()
                .map(drop)
                .map_err(|_| "it is a release, such as 0.1.0".to_owned())
        },
    },
    Key {
        name: "release-keys",
        variable: library::KEYS,
        meaning: "Public keys besides those of the command by which libraries of servers are recognised; `outboard library sign` prints them.",
        is_of_a_server: false,
        check: |text| library::keys(text).map(drop).map_err(|error| error.to_string()),
    },
    Key {
        name: "keepalive",
        variable: "OUTBOARD_KEEPALIVE",
        meaning: "After how many seconds without an answer a server counts as gone: 3 to 3600; the default is 15.",
        is_of_a_server: false,
        check: number,
    },
    Key {
        name: "spin-us",
        variable: "OUTBOARD_SPIN_US",
        meaning: "For how many microseconds a thread that waits looks again and again before it sleeps.",
        is_of_a_server: false,
        check: number,
    },
    Key {
        name: "page-touches",
        variable: "OUTBOARD_PAGE_TOUCHES",
        meaning: "How the library learns that a program touches memory that the device has changed: `auto` from the kernel's `userfaultfd`, where the program may have it, or `signals`; the default is auto.",
        is_of_a_server: false,
        check: |text| one_of(text, &["auto", "signals"]),
    },
    Key {
        name: "copy-threads",
        variable: "OUTBOARD_COPY_THREADS",
        meaning: "How many threads copy to and from shared staging memory.",
        is_of_a_server: false,
        check: number,
    },
    Key {
        name: "profile",
        variable: "OUTBOARD_PROFILE",
        meaning: "The file in which each process leaves its profile; `%p` in it is the number of the process.",
        is_of_a_server: false,
        check: |_| Ok(()),
    },
    Key {
        name: "log",
        variable: "OUTBOARD_LOG",
        meaning: "Anything but nothing has the library say on standard error why it cannot serve a program.",
        is_of_a_server: false,
        check: |_| Ok(()),
    },
];

fn one_of(text: &str, values: &[&str]) -> Result<(), String> {
    if values.contains(&text) { Ok(()) } else { Err(format!("it is one of {}", values.join(", "))) }
}

fn number(text: &str) -> Result<(), String> {
    text.parse::<u32>().map(drop).map_err(|_| "it is a number".to_owned())
}

/// The key of this name.
pub(crate) fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Keys that name files.
const FILES: [&str; 10] = [
    "tls-ca",
    "tls-cert",
    "tls-key",
    "token-file",
    "lease",
    "lease-key",
    "pool-ca",
    "pool-token-file",
    "pool-cert",
    "pool-key",
];

/// A setting as the library reads it: it knows no home folder.
pub(super) fn value(setting: &Setting, home: Option<OsString>) -> OsString {
    let text = setting.text();
    let below = text.strip_prefix("~/").filter(|_| FILES.contains(&setting.name.as_str()));
    match (below, home) {
        (Some(below), Some(home)) => PathBuf::from(home).join(below).into_os_string(),
        _ => text.into(),
    }
}

/// The mistakes in the files that settings name, a sentence each.
pub(crate) fn wrong_files<'a>(settings: impl Iterator<Item = &'a Setting>) -> Vec<String> {
    let files = settings.filter(|setting| FILES.contains(&setting.name.as_str()));
    let opened =
        files.map(|setting| (setting, PathBuf::from(value(setting, std::env::var_os("HOME")))));
    opened
        .filter_map(|(setting, path)| {
            let error = std::fs::File::open(&path).err()?;
            Some(format!(
                "`{}` in line {} names {}, which cannot be read: {error}",
                setting.name,
                setting.line,
                path.display()
            ))
        })
        .collect()
}

/// The servers to which a fingerprint belongs, and where both are said.
pub(crate) struct Login {
    servers: String,
    /// Whether a table of the file says so, and no variable.
    is_in_file: bool,
    /// The end of a sentence: `from FILE:LINE`.
    pub(crate) place: String,
}

/// The login in force: a server and a fingerprint that were named together, in a table of the file
/// or by variables. Must be called before [`set`].
pub(crate) fn login(settings: Option<&Settings>, in_force: &InForce) -> Option<Login> {
    let [server, fingerprint] = ["server", "tls-fingerprint"].map(key);
    let (server, fingerprint) = (server?, fingerprint?);
    match in_force.variable(fingerprint) {
        Some(_) => Some(Login {
            is_in_file: false,
            servers: in_force
                .variable(server)?
                .into_string()
                .ok()
                .filter(|text| !text.is_empty())?,
            place: format!("from {}", fingerprint.variable),
        }),
        None => {
            let line = in_force.setting(fingerprint)?.line;
            let servers = in_force.setting(server)?.text();
            let place = format!("from {}:{line}", settings?.file.display());
            Some(Login { servers, is_in_file: true, place })
        }
    }
}

/// Says to the library, and to programs, to which servers the fingerprint belongs. What has
/// inherited its variables from `outboard run` or `outboard env` knows already.
pub(crate) fn set_login(login: &Login) {
    if login.is_in_file || std::env::var_os(LOGIN_OF).is_none_or(|set| set.is_empty()) {
        // SAFETY: nothing but the main thread exists yet: the command line has not even been
        // understood.
        unsafe { std::env::set_var(LOGIN_OF, &login.servers) };
    }
}

/// An empty list of servers is none.
pub(crate) fn unset_empty_server() {
    if std::env::var_os(SERVER).is_some_and(|servers| servers.is_empty()) {
        // SAFETY: nothing but the main thread exists yet: the command line has not even been
        // understood.
        unsafe { std::env::remove_var(SERVER) };
    }
}

/// Has this process use that server.
pub(crate) fn set_server(server: &str) {
    // SAFETY: nothing but the main thread exists yet: the command line has not even been
    // understood.
    unsafe { std::env::set_var(SERVER, server) };
}

/// Sets the variables for the settings in force, except those that are set already and count. This
/// process and the program that it becomes read them.
pub(crate) fn set(in_force: &InForce) {
    for key in KEYS.iter().filter(|key| key.name != context::KEY) {
        if in_force.variable(key).is_some() {
            continue;
        }
        match in_force.setting(key) {
            // SAFETY: nothing but the main thread exists yet: the command line has not even been
            // understood.
            Some(setting) => unsafe {
                std::env::set_var(key.variable, value(setting, std::env::var_os("HOME")))
            },
            // SAFETY: as above.
            None if in_force.by_flag && key.is_of_a_server => unsafe {
                std::env::remove_var(key.variable)
            },
            None => {}
        }
    }
    if in_force.by_flag {
        // SAFETY: as above.
        unsafe { std::env::remove_var("OUTBOARD_TOKEN") };
        // SAFETY: as above.
        unsafe { std::env::remove_var("OUTBOARD_POOL_TOKEN") };
        let is_login = |name| key(name).and_then(|key| in_force.setting(key)).is_some();
        if !is_login("server") || !is_login("tls-fingerprint") {
            // SAFETY: as above.
            unsafe { std::env::remove_var(LOGIN_OF) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_lie_below_the_home_folder() {
        let named = |name: &str, text: &str| {
            let setting = Setting { name: name.to_owned(), values: vec![text.to_owned()], line: 1 };
            value(&setting, Some("/h/me".into()))
        };
        assert_eq!(named("token-file", "~/.token"), "/h/me/.token");
        assert_eq!(named("token-file", "/a/~/b"), "/a/~/b");
        assert_eq!(named("profile", "~/p"), "~/p", "it is the program's folder that counts");
        assert!(FILES.iter().all(|name| key(name).is_some()));
    }

    #[test]
    fn every_key_is_there_once() {
        for (at, one) in KEYS.iter().enumerate() {
            let again = KEYS[..at]
                .iter()
                .any(|other| other.name == one.name || other.variable == one.variable);
            assert!(!again, "{} stands there twice", one.name);
        }
    }
}
