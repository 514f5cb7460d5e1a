//! Folders for tests, each of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of a test's own, for a server's state and for files.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// A new one, which goes when it is dropped.
    pub fn create() -> Folder {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir()
            .join(format!("outboard-e2e-folder-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder can be made");
        Folder(path)
    }

    /// Where a file of this name is, or would be.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain path").to_owned()
    }

    /// A file that only its user can read: it may be a key.
    pub fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).expect("the file can be written");
        self.allow(name, 0o600);
        self.path(name)
    }

    /// Gives a file this mode.
    pub fn allow(&self, name: &str, mode: u32) {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(self.0.join(name), mode).expect("it is the test's own");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
