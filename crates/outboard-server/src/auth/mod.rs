//! Who may come in: tokens, certificates, and what is asked of whom.
//!
//! The supervisor asks [`Gate`] about each hello that starts something. Whoever shows a session's key is that session's owner and is not asked again.

pub mod certificate;
mod clients;
mod gate;
pub mod tokens;

use std::path::PathBuf;

use outboard_wire::Code;

pub(crate) use gate::{Gate, Way};

/// Whether connections over TCP are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    /// They must be, except those from the machine itself, which may be.
    #[default]
    Auto,
    /// They must be.
    On,
    /// They cannot be.
    Off,
}

/// How a server knows its clients.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Whether connections are encrypted.
    pub tls: Tls,
    /// The server's certificate and key, in PEM. Without them it has one of its own making in its folder.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Authorities whose certificates clients may show, in PEM.
    pub client_ca: Option<PathBuf>,
    /// The folder where the server keeps its certificate and the tokens; without it, there are neither.
    pub state: Option<PathBuf>,
    /// Whoever can connect may come in, wherever the server listens.
    pub allow_anonymous: bool,
    /// Nobody comes in over TCP without showing who it is, not even on loopback.
    pub required: bool,
}

/// Why a server cannot tell its clients apart as it is to.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// It would be open to everybody.
    #[error(
        "{address} can be reached from other machines, and there is nothing by which a client could show who it is: whoever can connect \
         could run code on the GPU"
    )]
    Open {
        /// Where it was to listen.
        address: std::net::SocketAddr,
    },
    /// A file or folder cannot be used.
    #[error("{what} {path} cannot be used: {reason}", path = path.display())]
    File {
        /// What it is.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// TLS is asked for, and there is no certificate.
    #[error("connections are to be encrypted, and there is neither a certificate nor a folder to keep one in")]
    NoCertificate,
}

impl AuthError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            AuthError::Open { .. } => Code::OpenToAll,
            AuthError::File { .. } | AuthError::NoCertificate => Code::FileUnusable,
        }
    }

    fn file(what: &'static str, path: impl Into<PathBuf>, reason: impl std::fmt::Display) -> AuthError {
        AuthError::File { what, path: path.into(), reason: reason.to_string() }
    }
}

/// Whether a server with these settings would come up at this address, as far as its clients are concerned.
pub fn check(config: &Config, address: std::net::SocketAddr) -> Result<(), AuthError> {
    gate::Gate::open(config, address).map(drop)
}

/// The folder for a server's own things unless it is told another: what systemd names, the user's folder for state, or the system's.
pub fn usual_state_folder(variable: impl Fn(&str) -> Option<std::ffi::OsString>, is_root: bool) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(folder) = absolute("STATE_DIRECTORY") {
        return Some(folder);
    }
    if let Some(folder) = absolute("XDG_STATE_HOME") {
        return Some(folder.join("outboard"));
    }
    if is_root {
        return Some(PathBuf::from("/var/lib/outboard"));
    }
    absolute("HOME").map(|home| home.join(".local/state/outboard"))
}

/// Makes a folder that only this user can look into, or checks that nobody else can change one that is there.
pub(crate) fn own_folder(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = std::fs::metadata(path)?;
    let own = rustix::process::geteuid().as_raw();
    if (found.uid() != own && found.uid() != 0) || found.mode() & 0o022 != 0 {
        return Err(std::io::Error::other("others than its user can write to the folder"));
    }
    Ok(())
}

/// Writes a file that only this user can read, all of it or nothing.
pub(crate) fn write_secret(path: &std::path::Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_where_the_system_says() {
        let with = |set: &[(&str, &str)], root| {
            usual_state_folder(|name| set.iter().find(|(of, _)| *of == name).map(|(_, value)| value.into()), root)
        };
        let all = [("STATE_DIRECTORY", "/var/lib/x"), ("XDG_STATE_HOME", "/state"), ("HOME", "/users/a")];
        assert_eq!(with(&all, false), Some("/var/lib/x".into()));
        assert_eq!(with(&all[1..], true), Some("/state/outboard".into()));
        assert_eq!(with(&all[2..], false), Some("/users/a/.local/state/outboard".into()));
        assert_eq!(with(&all[2..], true), Some("/var/lib/outboard".into()));
        assert_eq!(with(&[("XDG_STATE_HOME", "relative")], false), None);
    }
}
