//! Settings of long-running servers: how one ends, and what survives it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How a server ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How long sessions may go on after the server was asked to stop.
    pub drain: Duration,
    /// Where it notes what the next server at its address needs to go on with its sessions, should
    /// it end in another way.
    pub records: Folder,
    /// The program for an upgrade.
    pub program: Option<Program>,
    /// For how long a session waits for that server; for ever, or as long as its client is there,
    /// without.
    pub outlive: Option<Duration>,
    /// When it ends by itself, if it does.
    pub once: Option<Once>,
}

/// When a server ends that is there for some clients and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Once {
    /// How long it waits for the first client.
    pub first: Duration,
    /// How long it waits for another one after the last has gone.
    pub after: Duration,
}

/// A folder for what a server notes while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folder {
    /// None: sessions end with their server, however that ends.
    Off,
    /// The usual one; if that cannot be, none.
    Usual,
    /// There.
    At(PathBuf),
}

impl Default for Config {
    fn default() -> Config {
        Config {
            drain: Duration::from_secs(30),
            records: Folder::Off,
            program: None,
            outlive: None,
            once: None,
        }
    }
}

/// How to become another release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program's path, which is also that of its next release.
    pub path: PathBuf,
    /// Its name and arguments.
    pub arguments: Vec<OsString>,
    /// Those with which it only says whether it could serve.
    pub check: Vec<OsString>,
}
