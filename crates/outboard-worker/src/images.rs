//! Images that clients name by their content: found in the cache, or sent.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use outboard_abi::CUresult;
use outboard_image::ImageHash;
use outboard_wire::types::ImageName;

use super::modules::MAX_IMAGE;
use super::part::Part;
use crate::image_cache::ImageCache;

/// How long the end of a session waits for images that are still being written: its client has
/// gone.
const FLUSH: Duration = Duration::from_millis(250);

/// The session's way to images by name.
#[derive(Default)]
pub(super) struct Images {
    cache: Option<ImageCache>,
    /// Sent, and not loaded yet.
    sent: HashMap<ImageName, Arc<Part>>,
    bytes: u64,
}

impl Images {
    pub(super) fn new(cache: Option<ImageCache>) -> Images {
        Images { cache, ..Images::default() }
    }

    /// Whether images are kept beyond this session.
    pub(super) fn are_kept(&self) -> bool {
        self.cache.is_some()
    }

    /// An image has come whole.
    pub(super) fn arrived(&mut self, name: ImageName, image: Part) -> Result<(), CUresult> {
        if image.len() as u64 != name.bytes || ImageHash::of(image.bytes()).0 != name.hash {
            return Err(CUresult::CUDA_ERROR_INVALID_IMAGE);
        }
        let bytes = self.bytes.saturating_add(name.bytes);
        if bytes > MAX_IMAGE as u64 {
            self.forget();
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        let image = Arc::new(image);
        if let Some(cache) = &self.cache {
            cache.keep(&name, Arc::clone(&image));
        }
        if self.sent.insert(name, image).is_none() {
            self.bytes = bytes;
        }
        Ok(())
    }

    /// The images of these names, or which of them are missing.
    pub(super) fn find(&mut self, names: &[ImageName]) -> Result<Vec<Arc<Part>>, Vec<u32>> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let image = self.sent.get(name).cloned();
            let cached = || self.cache.as_ref().and_then(|cache| cache.find(name)).map(Arc::new);
            match image.or_else(cached) {
                Some(image) => found.push(image),
                None => missing.push(index as u32),
            }
        }
        if missing.is_empty() { Ok(found) } else { Err(missing) }
    }

    /// The received pieces are not needed any more.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
        self.bytes = 0;
    }

    /// The session ends.
    pub(super) fn flush(&self) {
        if let Some(cache) = &self.cache {
            cache.flush(FLUSH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(content: &[u8]) -> ImageName {
        ImageName { hash: ImageHash::of(content).0, bytes: content.len() as u64 }
    }

    #[test]
    fn what_was_sent_is_found_under_its_own_name_only() {
        let mut images = Images::default();
        let (one, two) = (name(b"one"), name(b"two"));
        assert_eq!(images.find(&[one, two]).err(), Some(vec![0, 1]));
        images.arrived(two, Part::new(b"two")).unwrap();
        assert_eq!(images.find(&[one, two, two]).err(), Some(vec![0]));
        for wrong in [ImageName { bytes: 4, ..one }, two] {
            assert_eq!(
                images.arrived(wrong, Part::new(b"one")),
                Err(CUresult::CUDA_ERROR_INVALID_IMAGE)
            );
        }
        images.arrived(one, Part::new(b"one")).unwrap();
        let found = images.find(&[two, one]).unwrap();
        assert_eq!((found[0].bytes(), found[1].bytes()), (&b"two"[..], &b"one"[..]));
        images.forget();
        assert!(images.find(&[one]).is_err());
    }
}
