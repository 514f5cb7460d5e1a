//! Where a server keeps images.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use outboard_pool::words::Size;
use outboard_worker::image_cache::{ImageCache, ONE_OWNER};

/// The folder to use: the one given, or the usual one; `None` if images are not kept, or cannot be,
/// which the log says.
pub(crate) fn folder(given: Option<PathBuf>) -> Option<PathBuf> {
    if given.as_deref() == Some(Path::new("off")) {
        return None;
    }
    let Some(folder) = given.or_else(usual_folder) else {
        tracing::warn!(
            "images are not kept: there is no folder for caches; --image-cache names one"
        );
        return None;
    };
    match ImageCache::open(&folder, ONE_OWNER, 0) {
        Ok(_) => std::path::absolute(folder).ok(),
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "images are not kept: the folder cannot be used");
            None
        }
    }
}

/// The folder that is used unless another one is named.
pub(crate) fn usual_folder() -> Option<PathBuf> {
    usual(|name| std::env::var_os(name))
}

/// In the user's folder for caches.
fn usual(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    Some(crate::folders::caches(variable)?.join("outboard/images"))
}

/// A number of bytes, as people write it.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(|size| size.0).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_folder_is_the_users() {
        let folder = |set: &[(&str, &str)]| {
            usual(|name| {
                set.iter().find(|(of, _)| *of == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert_eq!(folder(&[("HOME", "/users/a")]), Some("/users/a/.cache/outboard/images".into()));
        let both = [("HOME", "/users/a"), ("XDG_CACHE_HOME", "/cache")];
        assert_eq!(folder(&both), Some("/cache/outboard/images".into()));
        // A relative one does not count, as the convention says.
        assert_eq!(folder(&[("XDG_CACHE_HOME", "cache")]), None);
        assert_eq!(folder(&[]), None);
    }
}
