//! The key that signs leases, in a file that only the broker's user can read.

use super::StoreError;
use outboard_auth::files::{lock, own_folder, read_secret, write_secret};
use outboard_pool::lease::SigningKey;
use std::io;
use std::path::Path;

/// The broker's key, made if there is none.
///
/// # Errors
///
/// If the file is none of a key, or others can read it.
pub fn signing_key(folder: &Path) -> Result<SigningKey, StoreError> {
    let path = folder.join("lease.key");
    let attempt = || {
        own_folder(folder)?;
        let _held = lock(&folder.join("lease.lock"))?;
        let text = match read_secret(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(String::from_utf8_lossy(&read?).into_owned()),
        };
        match text {
            Some(text) => SigningKey::from_text(text.trim()).map_err(io::Error::other),
            None => {
                let key = SigningKey::generate().map_err(io::Error::other)?;
                write_secret(&path, format!("{}\n", key.to_secret_text()).as_bytes())?;
                Ok(key)
            }
        }
    };
    attempt().map_err(|error: io::Error| StoreError::Unusable {
        path: path.clone(),
        reason: error.to_string(),
    })
}
