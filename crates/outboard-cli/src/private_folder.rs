//! Folders that only this user can enter, for as long as a server runs.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Longer paths cannot be those of a socket, to whose name ssh adds some letters at first.
const LONGEST_FOLDER: usize = 56;

/// A new folder, which goes again unless it is kept.
pub(crate) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    pub(crate) fn create(what_for: &str) -> io::Result<PrivateFolder> {
        let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let fits = |folder: &PathBuf| {
            folder.is_absolute() && folder.as_os_str().len() < LONGEST_FOLDER && folder.is_dir()
        };
        let above = given.filter(fits).unwrap_or_else(|| PathBuf::from("/tmp"));
        let process = std::process::id();
        // One that is there belongs to another server.
        let mut number = 0;
        loop {
            let folder = above.join(format!("outboard-{what_for}-{process}.{number}"));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => return Ok(PrivateFolder(folder)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Somebody else removes it.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
