//! The keys that sign leases, in a file that only the broker's user can read: the newest first.

use super::StoreError;
use outboard_auth::files::{lock, own_folder, read_secret, write_secret};
use outboard_pool::lease::SigningKey;
use std::io;
use std::path::{Path, PathBuf};

/// The most keys in the file: the one that signs, and those that it follows.
const MOST: usize = 3;

fn file(folder: &Path) -> PathBuf {
    folder.join("lease.key")
}

fn attempt<T>(folder: &Path, what: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, StoreError> {
    let path = file(folder);
    let done = own_folder(folder)
        .and_then(|()| lock(&folder.join("lease.lock")))
        .and_then(|_held| what(&path));
    done.map_err(|error| StoreError::Unusable { path, reason: error.to_string() })
}

/// The keys in the file; none, if there is no file.
fn read(path: &Path) -> io::Result<Vec<SigningKey>> {
    let text = match read_secret(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => String::from_utf8_lossy(&read?).into_owned(),
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: Vec<SigningKey> =
        lines.map(SigningKey::from_text).collect::<Result<_, _>>().map_err(io::Error::other)?;
    if keys.is_empty() {
        return Err(io::Error::other("there is no key in it"));
    }
    Ok(keys)
}

/// Puts a new key before these.
fn put_first(path: &Path, mut keys: Vec<SigningKey>) -> io::Result<Vec<SigningKey>> {
    keys.insert(0, SigningKey::generate().map_err(io::Error::other)?);
    keys.truncate(MOST);
    let text: String = keys.iter().map(|key| key.to_secret_text() + "\n").collect();
    write_secret(path, text.as_bytes())?;
    Ok(keys)
}

/// The broker's keys. If there is none, one is made, where that may be.
///
/// # Errors
///
/// If the file is none of keys, or others can read it.
pub fn signing_keys(folder: &Path, may_make: bool) -> Result<Vec<SigningKey>, StoreError> {
    attempt(folder, |path| {
        let keys = read(path)?;
        if keys.is_empty() && may_make { put_first(path, keys) } else { Ok(keys) }
    })
}

/// Puts a new key into the file, which signs once servers know it. Returns it as servers are told.
///
/// # Errors
///
/// As [`signing_keys`].
pub fn add_key(folder: &Path) -> Result<String, StoreError> {
    let keys = attempt(folder, |path| put_first(path, read(path)?))?;
    Ok(keys.first().map(|key| key.public().to_text()).unwrap_or_default())
}
