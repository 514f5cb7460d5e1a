//! Files and folders that others must not change, or not even read.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder for a server's own things unless it is told another: what systemd names, the user's
/// folder for state, or the system's.
pub fn usual_state_folder(
    variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    is_root: bool,
) -> Option<PathBuf> {
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

/// Makes a folder that only this user can enter, or checks that no other user can change an
/// existing one.
pub fn own_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = std::fs::metadata(path)?;
    // On a read-only file system, such as a cluster's secrets, the mode has no meaning.
    if is_ours(&found)
        && rustix::fs::statvfs(path)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)
    {
        return Ok(());
    }
    is_own(&found, "folder")
}

/// Checks that only this user and root can change a file or folder.
fn is_own(found: &Metadata, what: &str) -> io::Result<()> {
    if !is_ours(found) || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("others than its user can write to the {what}")));
    }
    Ok(())
}

fn is_ours(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw()
}

/// Reads a file that no other user may change. Checks the opened file itself, whatever the path
/// leads to a moment later.
pub fn read_own(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    is_own(&file.metadata()?, "file")?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file that no other user may even read; a group may, if the file is root's: so systems
/// give a key to a service.
pub fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let found = file.metadata()?;
    let others = if found.uid() == 0 { 0o037 } else { 0o077 };
    if !is_ours(&found) || found.mode() & others != 0 {
        let sentence =
            "others than its user can read it, and a key is to be secret: `chmod 600` it";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, sentence));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Holds what one at a time may do in a folder; until the file is dropped.
pub fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).write(true).truncate(false).mode(0o600).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Writes a file that only this user can read and write, all of it or nothing.
pub fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_secret_as(path, bytes, 0o600)
}

/// As [`write_secret`], with that mode.
pub fn write_secret_as(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let unfinished = path.with_extension(format!("unfinished-{}", std::process::id()));
    let write = || {
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(mode).open(&unfinished)?;
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
            usual_state_folder(
                |name| set.iter().find(|(of, _)| *of == name).map(|(_, value)| value.into()),
                root,
            )
        };
        let all =
            [("STATE_DIRECTORY", "/var/lib/x"), ("XDG_STATE_HOME", "/state"), ("HOME", "/users/a")];
        assert_eq!(with(&all, false), Some("/var/lib/x".into()));
        assert_eq!(with(&all[1..], true), Some("/state/outboard".into()));
        assert_eq!(with(&all[2..], false), Some("/users/a/.local/state/outboard".into()));
        assert_eq!(with(&all[2..], true), Some("/var/lib/outboard".into()));
        assert_eq!(with(&[("XDG_STATE_HOME", "relative")], false), None);
    }

    #[test]
    fn a_key_is_its_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        write_secret(&path, b"key").unwrap();
        assert_eq!(read_secret(&path).unwrap(), b"key");
        let is_root = rustix::process::geteuid().is_root();
        // A key of root's may be for a group.
        for (mode, is_fine) in
            [(0o400, true), (0o640, is_root), (0o660, false), (0o604, false), (0o644, false)]
        {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_secret(&path).is_ok(), is_fine, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_own(&path).is_ok());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).unwrap();
        assert!(read_own(&path).is_err());
        if is_root {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(
                read_own(&path).is_err() && read_secret(&path).is_err(),
                "it is somebody else's"
            );
        }
        std::fs::remove_file(&path).unwrap();
        let held = lock(&path).unwrap();
        assert_eq!(held.metadata().unwrap().mode() & 0o777, 0o600);
    }
}
