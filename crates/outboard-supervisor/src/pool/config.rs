//! What a server of a pool is told.

use std::path::{Path, PathBuf};

use outboard_pool::lease::PublicKey;
use outboard_pool::words::ServerName;

use super::broker::Broker;
use super::error::PoolError;

/// How a server belongs to a pool.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The pool's name for the server; without it, the machine's.
    pub name: Option<String>,
    /// Files with public keys of the pool's broker, one a line.
    pub keys: Vec<PathBuf>,
    /// The broker to which the server says how it is.
    pub broker: Option<Broker>,
}

impl Config {
    /// Whether the server is one of a pool.
    pub fn is_set(&self) -> bool {
        !self.keys.is_empty() || self.broker.is_some()
    }

    /// The server's name in the pool.
    pub(super) fn name(&self) -> Result<ServerName, PoolError> {
        let name = self
            .name
            .clone()
            .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        name.parse().map_err(|reason| PoolError::Name { name, reason })
    }

    /// The keys in the files.
    pub(super) fn keys(&self) -> Result<Vec<PublicKey>, PoolError> {
        let all: Result<Vec<Vec<PublicKey>>, _> = self.keys.iter().map(|path| keys(path)).collect();
        Ok(all?.into_iter().flatten().collect())
    }
}

/// The keys in one file. Nobody else may change it: whoever can, can give out the server.
fn keys(path: &Path) -> Result<Vec<PublicKey>, PoolError> {
    let failed = |reason: &dyn std::fmt::Display| PoolError::Key {
        path: path.to_owned(),
        reason: reason.to_string(),
    };
    let bytes = outboard_auth::files::read_own(path).map_err(|error| failed(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| failed(&error))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Result<Vec<PublicKey>, _> = lines.map(PublicKey::from_text).collect();
    let keys = keys.map_err(|error| failed(&error))?;
    if keys.is_empty() { Err(failed(&"there is no key in it")) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use outboard_pool::lease::SigningKey;
    use outboard_wire::Code;

    use super::*;

    #[test]
    fn keys_are_read_from_files_that_only_the_server_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let key = SigningKey::generate().unwrap().public().to_text();
        let other = SigningKey::generate().unwrap().public().to_text();
        write(&format!("{key}\n\n  {other}\n"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(keys(&path).unwrap().len(), 2);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(keys(&path).unwrap_err().to_string().contains("others than its user"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "\n", "k4.secret.AAAA", &key[1..]] {
            write(wrong);
            assert_eq!(keys(&path).unwrap_err().code(), Code::FileUnusable, "{wrong}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = keys(&path).unwrap_err().to_string();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    fn a_server_is_called_as_it_is_told() {
        let named = |name: &str| Config { name: Some(name.to_owned()), ..Config::default() };
        assert_eq!(named("gpu1:9470").name().unwrap().as_str(), "gpu1:9470");
        assert!(named("gpu 1").name().unwrap_err().to_string().contains("--pool-name"));
    }
}
