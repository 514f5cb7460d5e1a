//! Folders of the user.

use std::ffi::OsString;
use std::path::PathBuf;

/// The user's folder for caches, by the environment's variables.
pub(crate) fn caches(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
}

/// This process's user.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}
