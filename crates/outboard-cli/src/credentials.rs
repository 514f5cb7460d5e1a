//! Flags by which a client recognises its server and authenticates itself: each sets a variable,
//! which programs inherit.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use outboard_client::link::Config;
use outboard_client::link::security::{LOGIN_OF, Security};
use outboard_client::own_settings;
use outboard_client::target::Target;

use crate::config::servers;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// SHA-256 of the server's certificate; `outboard token fingerprint` prints it there. Also
    /// OUTBOARD_TLS_FINGERPRINT.
    #[arg(
        long,
        visible_alias = "fingerprint",
        value_name = "sha256:HEX",
        help_heading = "Who is who"
    )]
    tls_fingerprint: Option<String>,
    /// Authorities that sign certificates of servers, in PEM. Also OUTBOARD_TLS_CA.
    #[arg(long, value_name = "FILE", help_heading = "Who is who")]
    tls_ca: Option<PathBuf>,
    /// The client's own certificate, in PEM. Also OUTBOARD_TLS_CERT.
    #[arg(long, value_name = "FILE", help_heading = "Who is who", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its key, in PEM. Also OUTBOARD_TLS_KEY.
    #[arg(long, value_name = "FILE", help_heading = "Who is who", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A file with the client's token. Also OUTBOARD_TOKEN_FILE; OUTBOARD_TOKEN holds a token
    /// itself.
    #[arg(long, value_name = "FILE", help_heading = "Who is who")]
    token_file: Option<PathBuf>,
    /// A file with the client's lease of a pool. Also OUTBOARD_LEASE.
    #[arg(long, value_name = "FILE", help_heading = "Who is who", requires = "lease_key")]
    lease: Option<PathBuf>,
    /// A file with the key to which the lease is bound, Ed25519 in PEM. Also OUTBOARD_LEASE_KEY.
    #[arg(long, value_name = "FILE", help_heading = "Who is who", requires = "lease")]
    lease_key: Option<PathBuf>,
    /// Whether to encrypt: `auto` does, except to a server on this machine that is named without
    /// fingerprint or authority. Also OUTBOARD_TLS.
    #[arg(long, value_name = "auto|on|off", value_parser = ["auto", "on", "off"], help_heading = "Who is who")]
    tls: Option<String>,
}

/// Warns on standard error of credential files for these servers that other users can read.
pub(crate) fn warn_of_open_files(servers: &[Target]) {
    let all: Vec<Security> =
        servers.iter().map(|server| Config::of_server(server).security).collect();
    warn_of_open_files_of(&all);
}

/// The same of the files that these settings name.
pub(crate) fn warn_of_open_files_of<'a>(all: impl IntoIterator<Item = &'a Security>) {
    let mut files = BTreeSet::new();
    for security in all {
        let Security { token_file, key, lease, lease_key, .. } = security;
        files.extend(token_file.iter().map(|path| (path, "token")));
        files.extend(key.iter().map(|path| (path, "key")));
        files.extend(lease.iter().map(|path| (path, "lease")));
        files.extend(lease_key.iter().map(|path| (path, "key of the lease")));
    }
    for (path, what) in files {
        // A missing file is reported by the code that reads it.
        let Ok(file) = std::fs::metadata(path) else { continue };
        let mode = file.permissions().mode() & 0o777;
        if file.is_file() && mode & 0o077 != 0 {
            let path = path.display();
            eprintln!(
                "outboard: other users can read the {what} in {path} (mode {mode:o}); `chmod 600 {path}` keeps it yours"
            );
        }
    }
}

/// A variable, and its value or that it is to be gone.
pub(crate) type Change = (&'static str, Option<OsString>);

impl Args {
    /// The file with the token, if it was named here.
    pub(crate) fn token_file(&self) -> Option<&Path> {
        self.token_file.as_deref()
    }

    /// The client's own certificate and key, if they were named here.
    pub(crate) fn own(&self) -> Option<(&Path, &Path)> {
        self.tls_cert.as_deref().zip(self.tls_key.as_deref())
    }

    /// The client's lease and its key, if they were named here.
    pub(crate) fn leased(&self) -> Option<(&Path, &Path)> {
        self.lease.as_deref().zip(self.lease_key.as_deref())
    }

    /// Sets the variables, for this process and the program that it becomes.
    pub(crate) fn set(&self) {
        for (name, value) in self.changes() {
            match value {
                // SAFETY: nothing but the main thread exists yet.
                Some(value) => unsafe { std::env::set_var(name, value) },
                // SAFETY: as above.
                None => unsafe { std::env::remove_var(name) },
            }
        }
    }

    /// The changes to variables. The flags count: other variables of the environment for the same
    /// setting are removed.
    pub(crate) fn changes(&self) -> Vec<Change> {
        // A program may run in another folder.
        let path = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| {
                std::path::absolute(path).unwrap_or_else(|_| path.clone()).into_os_string()
            })
        };
        let mut changes: Vec<Change> = Vec::new();
        if self.token_file.is_some() {
            changes.push(("OUTBOARD_TOKEN", None));
        }
        // A fingerprint would win over authorities.
        if self.tls_ca.is_some() {
            changes.push(("OUTBOARD_TLS_FINGERPRINT", None));
        }
        if self.tls_fingerprint.is_some() {
            changes.push(("OUTBOARD_TLS_CA", None));
        }
        let settings: [Change; 8] = [
            ("OUTBOARD_TLS_FINGERPRINT", self.tls_fingerprint.clone().map(OsString::from)),
            ("OUTBOARD_TLS_CA", path(&self.tls_ca)),
            ("OUTBOARD_TLS_CERT", path(&self.tls_cert)),
            ("OUTBOARD_TLS_KEY", path(&self.tls_key)),
            ("OUTBOARD_TOKEN_FILE", path(&self.token_file)),
            ("OUTBOARD_LEASE", path(&self.lease)),
            ("OUTBOARD_LEASE_KEY", path(&self.lease_key)),
            ("OUTBOARD_TLS", self.tls.clone().map(OsString::from)),
        ];
        changes.extend(settings.into_iter().filter(|(_, value)| value.is_some()));
        // A flag means all servers.
        if !changes.is_empty() && std::env::var_os(LOGIN_OF).is_some() {
            changes.push((LOGIN_OF, None));
        }
        if !changes.is_empty() && std::env::var_os(own_settings::VARIABLE).is_some() {
            changes.push((own_settings::VARIABLE, servers::without_credentials()));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// What becomes of variables by these flags, in the end.
    fn changed(flags: &[&str]) -> BTreeMap<&'static str, Option<OsString>> {
        let line = Line::try_parse_from(std::iter::once(&"x").chain(flags))
            .map_err(|error| error.to_string())
            .unwrap();
        line.args.changes().into_iter().collect()
    }

    #[test]
    fn a_flag_goes_before_whatever_the_environment_says_of_the_same_matter() {
        assert!(changed(&[]).is_empty());
        let is_gone = |flags: &[&str], name: &str| changed(flags).get(name) == Some(&None);
        assert!(is_gone(&["--tls-ca", "/a"], "OUTBOARD_TLS_FINGERPRINT"));
        assert!(is_gone(&["--fingerprint", "sha256:0"], "OUTBOARD_TLS_CA"));
        assert!(is_gone(&["--token-file", "/t"], "OUTBOARD_TOKEN"));
        let both = changed(&["--tls-ca", "/a", "--tls-fingerprint", "sha256:0", "--tls", "on"]);
        let wanted = [
            ("OUTBOARD_TLS", "on"),
            ("OUTBOARD_TLS_CA", "/a"),
            ("OUTBOARD_TLS_FINGERPRINT", "sha256:0"),
        ];
        assert_eq!(both, wanted.map(|(name, value)| (name, Some(value.into()))).into());
    }
}
