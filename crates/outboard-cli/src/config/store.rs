//! Writes files of the user's configuration.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::failure::Failure;

/// Makes the folder of a file, for its user alone.
pub(crate) fn make_folder(file: &Path) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| Failure::file("make", folder, &error))
}

/// Writes a secret, which its user alone may read.
pub(crate) fn secret(file: &Path, text: &str) -> Result<(), Failure> {
    replace(file, text.as_bytes(), 0o600).map_err(|error| Failure::file("write", file, &error))
}

/// Writes a file that others may read.
pub(crate) fn open_to_all(file: &Path, text: &str) -> Result<(), Failure> {
    replace(file, text.as_bytes(), 0o644).map_err(|error| Failure::file("write", file, &error))
}

/// Writes a configuration file. One that is there keeps its mode, and a link to a file elsewhere
/// stays one.
pub(crate) fn configuration(file: &Path, text: &str) -> Result<(), Failure> {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mode = std::fs::metadata(&real).map_or(0o600, |there| there.permissions().mode() & 0o777);
    replace(&real, text.as_bytes(), mode).map_err(|error| Failure::file("write", &real, &error))
}

/// Writes a file, all of it or nothing.
fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".unfinished-{}", std::process::id()));
    let unfinished = path.with_file_name(name);
    let write = || {
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&unfinished)?;
        // Permissions to add to those that the process gives to new files.
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)
    };
    // Left by a process of the same number, which was killed.
    let _ = std::fs::remove_file(&unfinished);
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&unfinished);
    })
}
