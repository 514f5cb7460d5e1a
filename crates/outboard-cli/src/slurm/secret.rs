//! The secret that a cluster's controller and nodes share, and the keys of leases that both derive
//! from it.

use std::path::{Path, PathBuf};

use outboard_auth::files::read_secret;
use outboard_auth::lease_key;
use outboard_pool::words::{Purpose, Thumbprint};
use outboard_wire::Code;

use crate::failure::Failure;

/// Fewer bytes could be guessed.
const SHORTEST: usize = 32;

#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// The cluster's secret: at least 32 random bytes, the same on the controller and all nodes,
    /// that no user can read.
    #[arg(
        long,
        env = "OUTBOARD_SLURM_SECRET_FILE",
        hide_env_values = true,
        default_value = "/etc/outboard/slurm.secret",
        value_name = "FILE"
    )]
    secret_file: PathBuf,
}

impl Args {
    /// The key for a purpose, in PEM, and its thumbprint.
    pub(super) fn key(&self, purpose: &Purpose) -> Result<(String, Thumbprint), Failure> {
        let secret = read(&self.secret_file)?;
        let asker = "slurm".parse().expect("it is a name");
        lease_key::derive(&secret, &asker, purpose).map_err(|error| {
            let sentence = format!("a key for the lease cannot be made: {error}");
            Failure::new(Code::FileUnusable, sentence, "this should not happen: report it")
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let secret =
        read_secret(path).map_err(|error| Failure::file("read the secret", path, &error))?;
    if secret.len() < SHORTEST {
        let sentence = format!("the secret in {} is too short", path.display());
        let help = "make it of 32 random bytes or more: `openssl rand -base64 48`";
        return Err(Failure::new(Code::BadCredentials, sentence, help));
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_that_is_none_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let with = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            read(&path).map_err(|error| error.to_string())
        };
        let long = "0123456789abcdef0123456789abcdef";
        assert_eq!(with(long, 0o600).unwrap(), long.as_bytes());
        assert!(with(&long[1..], 0o600).unwrap_err().contains("too short"));
        assert!(with(long, 0o644).unwrap_err().contains("others than its user can read it"));
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path).is_err());
    }
}
