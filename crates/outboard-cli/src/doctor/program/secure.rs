//! Programs with more rights than their user: the loader trusts nothing of their environment.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;

/// Why the loader would not trust the environment of a program that this user starts.
pub(super) fn reason(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let mode = found.permissions().mode();
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if mode & SET_USER != 0 && found.uid() != user {
        return Some(format!("it runs as the user {} (set-user-ID)", found.uid()));
    }
    if mode & SET_GROUP != 0 && found.gid() != group {
        return Some(format!("it runs as the group {} (set-group-ID)", found.gid()));
    }
    let mut value = [0; 64];
    // Root has them anyway.
    let has_own =
        user != 0 && rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok();
    has_own.then(|| "it has capabilities of its own".to_owned())
}
