//! The key to which a server's name in its pool belongs, in a file of its state.

use std::io;
use std::path::Path;

use outboard_auth::files::{lock, own_folder, read_secret, write_secret};
use outboard_pool::lease::SigningKey;

use super::error::PoolError;

/// The key in that folder. If there is none, one is made.
pub(super) fn own_key(folder: &Path) -> Result<SigningKey, PoolError> {
    let path = folder.join("pool.key");
    let key = own_folder(folder)
        .and_then(|()| lock(&folder.join("pool.lock")))
        .and_then(|_held| read_or_make(&path));
    key.map_err(|error| PoolError::Key { path, reason: error.to_string() })
}

fn read_or_make(path: &Path) -> io::Result<SigningKey> {
    match read_secret(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let key = SigningKey::generate().map_err(io::Error::other)?;
            write_secret(path, (key.to_secret_text() + "\n").as_bytes())?;
            Ok(key)
        }
        read => {
            SigningKey::from_text(String::from_utf8_lossy(&read?).trim()).map_err(io::Error::other)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_server_has_the_same_key_at_each_start_and_nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let key = || own_key(&state).map(|key| key.public().to_text());
        let first = key().unwrap();
        assert_eq!(key().unwrap(), first);
        let path = state.join("pool.key");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(key().is_err(), "others can read it");
        std::fs::remove_file(&path).unwrap();
        assert_ne!(key().unwrap(), first);
        std::fs::write(&path, "nonsense").unwrap();
        assert!(key().unwrap_err().to_string().contains("pool.key"));
    }
}
