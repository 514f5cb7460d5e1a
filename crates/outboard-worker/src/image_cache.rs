//! Images on the server's disk, by content: no session needs to send an image that an earlier one
//! has sent.
//!
//! Each owner of sessions has its own folder, so that no answer reveals what another owner has
//! loaded. A file is named after the hash of its contents, which is checked whenever the file is
//! read. Errors cost time only: if the server cannot read or write the files, its sessions send
//! their images.

mod store;

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outboard_image::ImageHash;
use outboard_wire::types::ImageName;

use crate::part::Part;
use outboard_control::identity::Identity;
use store::Store;

/// The folder of clients that are not authenticated: to each other, they are one.
pub const ONE_OWNER: &str = "all";

/// The name of an owner's folder. An owner is called whatever a token or a certificate says, so
/// that the name is a hash of it.
pub fn owners_folder(owner: &str) -> String {
    if owner == Identity::ANONYMOUS {
        return ONE_OWNER.to_owned();
    }
    format!("owner-{}", &ImageHash::of(owner.as_bytes()).to_string()[..32])
}

/// The images that one owner's sessions have sent.
pub struct ImageCache {
    folder: PathBuf,
    store: Store,
}

impl ImageCache {
    /// The cache in a folder, of at most `limit` bytes of the disk for each owner. Missing folders
    /// are made.
    ///
    /// # Errors
    /// If nothing can be read or written there.
    pub fn open(root: &Path, owner: &str, limit: u64) -> io::Result<ImageCache> {
        let folder = root.join(owner);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        rustix::fs::access(&folder, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK)?;
        Ok(ImageCache { store: Store::new(folder.clone(), limit), folder })
    }

    /// The image of that name, if it is here and sound.
    pub(crate) fn find(&self, name: &ImageName) -> Option<Part> {
        let path = self.folder.join(file_name(name));
        let mut file = File::open(&path).ok()?;
        let read = read(&mut file, name);
        match &read {
            Ok(Some(_)) => {
                // The time says what has not been used for longest. The sandbox lets a worker set
                // no times, but whoever sets a file's length changes it, also to the same one.
                let _ = File::options()
                    .write(true)
                    .open(&path)
                    .and_then(|file| file.set_len(file.metadata()?.len()));
            }
            Ok(None) => {
                tracing::warn!(file = %path.display(), "an image in the cache is damaged; it is removed");
                let _ = std::fs::remove_file(&path);
            }
            Err(error) => {
                tracing::debug!(file = %path.display(), %error, "an image in the cache cannot be read")
            }
        }
        read.ok().flatten()
    }

    /// Keeps an image, whose name is known to be right, in the background.
    pub(crate) fn keep(&self, name: &ImageName, image: Arc<Part>) {
        self.store.add(file_name(name), image);
    }

    /// Waits until all that was to be kept is on disk, but not for long.
    pub(crate) fn flush(&self, patience: Duration) {
        self.store.flush(patience);
    }
}

fn file_name(name: &ImageName) -> String {
    ImageHash(name.hash).to_string()
}

/// The file's contents; `None` if it is not what its name says.
fn read(file: &mut File, name: &ImageName) -> io::Result<Option<Part>> {
    if file.metadata()?.len() != name.bytes {
        return Ok(None);
    }
    let mut part = Part::zeroed(usize::try_from(name.bytes).map_err(io::Error::other)?);
    file.read_exact(part.bytes_mut())?;
    Ok((ImageHash::of(part.bytes()).0 == name.hash).then_some(part))
}

#[cfg(test)]
mod tests;
