//! Bytes of an image, aligned and terminated for drivers.

use core::ffi::c_void;

/// One image, aligned as drivers want it and with zeros after it.
pub(crate) struct Part {
    /// All of them are there, whatever `len` says.
    words: Vec<u64>,
    len: usize,
}

const WORD: usize = size_of::<u64>();

/// Zeros after each image, at least: a text ends at the first, and a driver that looks for a header
/// (64 bytes in an ELF file) before it knows how much there is finds nothing else.
const ZEROS: usize = 64;

/// Words for so many bytes and the zeros after them.
fn words(len: usize) -> usize {
    (len + ZEROS).div_ceil(WORD)
}

impl Default for Part {
    fn default() -> Part {
        Part::zeroed(0)
    }
}

impl Part {
    pub(crate) fn new(bytes: &[u8]) -> Part {
        let mut part = Part::zeroed(bytes.len());
        part.bytes_mut().copy_from_slice(bytes);
        part
    }

    /// So many bytes, to be written.
    pub(crate) fn zeroed(len: usize) -> Part {
        Part { words: vec![0; words(len)], len }
    }

    /// Adds bytes at the end.
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let start = self.len;
        let words = words(start + bytes.len());
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
        self.len += bytes.len();
        self.bytes_mut()[start..].copy_from_slice(bytes);
    }

    pub(crate) fn pointer(&self) -> *const c_void {
        self.words.as_ptr().cast()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold more than that many bytes, which any may be read as.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.len) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes make words.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.len) }
    }

    /// Bytes, without the zeros.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a driver finds after the image.
    fn after(part: &Part) -> Vec<u8> {
        let start = part.pointer().cast::<u8>();
        // SAFETY: within the words, of which that many bytes are after the image.
        (0..ZEROS).map(|index| unsafe { *start.add(part.len() + index) }).collect()
    }

    #[test]
    fn bytes_grow_and_end_in_zeros() {
        assert_eq!(after(&Part::default()), [0; ZEROS], "nothing at all");
        let mut part = Part::default();
        let mut whole = Vec::new();
        for piece in [&b"one"[..], b"", b"two and three", b"12345678", &[7; 100]] {
            part.extend(piece);
            whole.extend_from_slice(piece);
            assert_eq!(part.bytes(), whole);
            let again = Part::new(&whole);
            assert_eq!((again.bytes(), again.len()), (&whole[..], whole.len()));
            for part in [&part, &again] {
                assert_eq!(after(part), [0; ZEROS]);
                assert!(part.pointer().cast::<u64>().is_aligned());
            }
        }
    }
}
