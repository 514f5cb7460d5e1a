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

/// Writes what a command makes to the file that it was told. A link there is replaced and not
/// followed: in a folder that others write to, it may be theirs.
pub(crate) fn output(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::file("write", file, &error);
    let is_link = file.symlink_metadata().is_ok_and(|there| there.is_symlink());
    match file.metadata() {
        // Such as a pipe, or a device.
        Ok(there) if !there.is_file() && !is_link => std::fs::write(file, text).map_err(failed),
        Ok(there) if !there.is_file() => Err(failed(io::Error::other(
            "it is a link to something that is no file; without a name, the output goes to \
             standard output",
        ))),
        _ => open_to_all(file, text),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn output_goes_to_the_name_and_never_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("others"), "theirs").unwrap();
        symlink(at("others"), at("out")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        symlink("/dev/null", at("device")).unwrap();
        for name in ["plain", "out", "dangling"] {
            output(&at(name), "made").unwrap();
            assert_eq!(fs::read_to_string(at(name)).unwrap(), "made");
            assert!(at(name).symlink_metadata().unwrap().is_file(), "{name}");
        }
        assert_eq!(fs::read_to_string(at("others")).unwrap(), "theirs");
        assert!(!at("nowhere").exists());
        assert!(output(&at("device"), "made").is_err());
        assert!(at("device").is_symlink());
        output(Path::new("/dev/null"), "made").unwrap();
    }
}
