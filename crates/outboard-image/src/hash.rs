//! Names of images by content, so that each travels to a server only once.

use std::fmt;

/// The BLAKE3 hash of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ImageHash(pub [u8; 32]);

impl ImageHash {
    /// Hash of an image in one piece.
    pub fn of(image: &[u8]) -> ImageHash {
        ImageHash(*blake3::hash(image).as_bytes())
    }

    /// Hash of an image in pieces that follow one another: the same as of the whole.
    pub fn of_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> ImageHash {
        let mut hasher = blake3::Hasher::new();
        for piece in pieces {
            hasher.update(piece);
        }
        ImageHash(*hasher.finalize().as_bytes())
    }
}

/// Lower-case hexadecimal.
impl fmt::Display for ImageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ImageHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageHash({self})")
    }
}
