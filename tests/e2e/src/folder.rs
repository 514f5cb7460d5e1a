//! Folders and files for tests, each of its own.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempDir};

/// A folder of a test's own, for a server's state and for files.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// A new one, which goes when it is dropped.
    pub fn create() -> Folder {
        Folder(tempfile::tempdir().expect("the folder can be made"))
    }

    /// Where a file of this name is, or would be.
    pub fn path(&self, name: &str) -> String {
        self.join(name).to_str().expect("a plain path").to_owned()
    }

    /// A file that only its user can read: it may be a key.
    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.join(name), text).expect("the file can be written");
        self.allow(name, 0o600);
        self.path(name)
    }

    /// Gives a file this mode.
    pub fn allow(&self, name: &str, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(self.join(name), mode).expect("it is the test's own");
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.0.path()
    }
}

/// What lies in the folders of a folder, as far as these are there.
pub fn inside_folders_of(folder: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path| {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    list(folder).flat_map(|inner| list(&inner)).collect()
}

/// A file in memory, which goes when it is dropped: what a virtual machine and its host share is
/// one to the host, and a client can map it as it maps the machine's device.
#[derive(Debug)]
pub struct SharedFile(NamedTempFile);

impl SharedFile {
    /// A new one of so many bytes.
    pub fn create(bytes: u64) -> SharedFile {
        let file = NamedTempFile::new_in("/dev/shm").expect("a file in memory");
        file.as_file().set_len(bytes).expect("there is room");
        SharedFile(file)
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        self.0.path().to_str().expect("a plain path")
    }
}
