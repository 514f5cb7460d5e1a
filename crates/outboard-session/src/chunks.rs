//! The chunks of one bulk transfer: which there are, which may come, which have come.

/// How a transfer is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    len: u64,
    chunk: u32,
    count: u32,
}

/// Why a transfer cannot be cut, or a chunk has no place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The chunk size is out of bounds, or makes too many chunks.
    #[error("a transfer of {len} bytes cannot be cut into chunks of {chunk}")]
    Cut {
        /// Bytes of the transfer.
        len: u64,
        /// Bytes of a chunk.
        chunk: u32,
    },
    /// The chunk was not granted, or does not exist.
    #[error("chunk {index} came, and only {granted} are granted")]
    NotGranted {
        /// Its index.
        index: u32,
        /// Chunks granted so far.
        granted: u32,
    },
    /// The chunk has another length than the cut gives it.
    #[error("chunk {index} has {found} bytes instead of {expected}")]
    Length {
        /// Its index.
        index: u32,
        /// Its length.
        found: u32,
        /// The length it should have.
        expected: u32,
    },
    /// The transfers under way take more staging memory than a session may.
    #[error("the session's transfers take more than {limit} bytes of staging memory")]
    Staging {
        /// The limit in bytes.
        limit: usize,
    },
    /// The chunk has come before.
    #[error("chunk {index} came twice")]
    Twice {
        /// Its index.
        index: u32,
    },
}

/// Chunks on their way in.
#[derive(Debug)]
pub struct Expected {
    cut: Cut,
    granted: u32,
    /// One bit for each chunk that has begun to come.
    begun: Vec<u64>,
    finished: u32,
}

/// Transfers of up to so many bytes are short: waking threads for their parts costs more than it
/// gains, so that the thread that has the bytes moves all of them.
pub const SHORT: u64 = 512 << 10;

/// Most chunks of one transfer: a tebibyte in the smallest chunks.
const MOST_CHUNKS: u64 = 1 << 24;

impl Cut {
    /// Cuts `len` bytes into chunks of `chunk` bytes, the last one shorter.
    ///
    /// # Errors
    /// [`ChunkError::Cut`] if `chunk` is outside of
    /// [`CHUNK_BYTES`](outboard_wire::limits::CHUNK_BYTES) or there would be too many chunks.
    pub fn new(len: u64, chunk: u32) -> Result<Cut, ChunkError> {
        let fits = outboard_wire::limits::CHUNK_BYTES.contains(&(chunk as usize));
        let count = if fits { len.div_ceil(u64::from(chunk)) } else { u64::MAX };
        if count > MOST_CHUNKS {
            return Err(ChunkError::Cut { len, chunk });
        }
        Ok(Cut { len, chunk, count: count as u32 })
    }

    /// Bytes of the transfer.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing to transfer.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether one thread moves all of it best; see [`SHORT`].
    pub fn is_short(&self) -> bool {
        self.len <= SHORT
    }

    /// Bytes of every chunk but the last.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// How many chunks there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many chunks may be on their way before any is granted: what fits into one transfer's
    /// staging memory. Both sides know it, so no message says it.
    pub fn window(&self) -> u32 {
        let fit = outboard_wire::limits::WINDOW / self.chunk as usize;
        self.count.min(fit as u32)
    }

    /// Bytes of staging memory that the transfer may take.
    pub fn staging(&self) -> usize {
        self.window() as usize * self.chunk as usize
    }

    /// Where chunk `index` starts, in bytes.
    pub fn offset(&self, index: u32) -> u64 {
        u64::from(index) * u64::from(self.chunk)
    }

    /// Bytes of chunk `index`; 0 if there is no such chunk.
    pub fn len_of(&self, index: u32) -> u32 {
        let left = self.len.saturating_sub(self.offset(index));
        left.min(self.chunk.into()) as u32
    }
}

impl Expected {
    /// Expects the chunks of a transfer, of which the first `granted` may come.
    pub fn new(cut: Cut, granted: u32) -> Expected {
        let words = cut.count.div_ceil(u64::BITS) as usize;
        Expected { cut, granted: granted.min(cut.count), begun: vec![0; words], finished: 0 }
    }

    /// How the transfer is cut.
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Lets chunks below `granted` come.
    pub fn grant(&mut self, granted: u32) {
        self.granted = self.granted.max(granted.min(self.cut.count));
    }

    /// A chunk of `len` bytes begins to come: where its bytes belong in the transfer.
    ///
    /// # Errors
    /// [`ChunkError`] if the chunk is not granted, has another length than its index gives it, or
    /// came before.
    pub fn begin(&mut self, index: u32, len: u32) -> Result<u64, ChunkError> {
        if index >= self.granted {
            return Err(ChunkError::NotGranted { index, granted: self.granted });
        }
        let expected = self.cut.len_of(index);
        if len != expected {
            return Err(ChunkError::Length { index, found: len, expected });
        }
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if self.begun[word] & bit != 0 {
            return Err(ChunkError::Twice { index });
        }
        self.begun[word] |= bit;
        Ok(self.cut.offset(index))
    }

    /// A chunk that began will not come whole: it may begin once more.
    pub fn broke_off(&mut self, index: u32) {
        if let Some(word) = self.begun.get_mut(index as usize / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// A chunk that began has come whole; whether it was the last.
    pub fn finish(&mut self) -> bool {
        self.finished += 1;
        self.is_complete()
    }

    /// How many chunks have come whole.
    pub fn finished(&self) -> u32 {
        self.finished
    }

    /// Whether all chunks have come whole.
    pub fn is_complete(&self) -> bool {
        self.finished >= self.cut.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u32 = 64 << 10;

    proptest! {
        #[test]
        fn chunks_cover_the_transfer_once(len in 0u64..10_000_000, chunk in CHUNK..(8 << 20)) {
            let cut = Cut::new(len, chunk).unwrap();
            let mut end = 0;
            for index in 0..cut.count() {
                prop_assert_eq!(cut.offset(index), end);
                prop_assert!(cut.len_of(index) > 0);
                end += u64::from(cut.len_of(index));
            }
            prop_assert_eq!(end, len);
            prop_assert_eq!(cut.len_of(cut.count()), 0);
        }

        #[test]
        fn each_chunk_is_taken_once(len in 1u64..5_000_000, order in proptest::collection::vec(0u32..100, 1..300)) {
            let cut = Cut::new(len, CHUNK).unwrap();
            let mut expected = Expected::new(cut, u32::MAX);
            let mut seen = std::collections::HashSet::new();
            for index in order {
                let result = expected.begin(index, cut.len_of(index));
                prop_assert_eq!(result.is_ok(), index < cut.count() && seen.insert(index), "{:?}", result);
                if result.is_ok() {
                    prop_assert_eq!(expected.finish(), seen.len() as u32 == cut.count());
                }
            }
        }
    }

    #[test]
    fn only_granted_chunks_of_the_right_length_come() {
        let cut = Cut::new(3 * u64::from(CHUNK) + 5, CHUNK).unwrap();
        let mut expected = Expected::new(cut, 2);
        assert_eq!(expected.begin(2, CHUNK), Err(ChunkError::NotGranted { index: 2, granted: 2 }));
        expected.grant(9);
        assert_eq!(expected.begin(4, 0), Err(ChunkError::NotGranted { index: 4, granted: 4 }));
        assert_eq!(
            expected.begin(3, CHUNK),
            Err(ChunkError::Length { index: 3, found: CHUNK, expected: 5 })
        );
        assert_eq!(expected.begin(3, 5), Ok(3 * u64::from(CHUNK)));
        assert_eq!(expected.begin(3, 5), Err(ChunkError::Twice { index: 3 }));
        expected.broke_off(3);
        assert_eq!(expected.begin(3, 5), Ok(3 * u64::from(CHUNK)));
    }

    #[test]
    fn a_window_fits_into_staging_memory() {
        for chunk in [CHUNK, 1 << 20, 3 << 20, 8 << 20] {
            let cut =
                Cut::new(1 << 40, chunk).unwrap_or_else(|_| Cut::new(1 << 36, chunk).unwrap());
            assert!(cut.window() >= 4 && cut.staging() <= outboard_wire::limits::WINDOW);
            assert_eq!(Cut::new(1, chunk).unwrap().window(), 1);
        }
    }

    #[test]
    fn absurd_cuts_are_refused() {
        assert!(Cut::new(1, 0).is_err());
        assert!(Cut::new(1, 1).is_err());
        assert!(Cut::new(1, u32::MAX).is_err());
        assert!(Cut::new(u64::MAX, 8 << 20).is_err());
        assert!(Cut::new(0, CHUNK).unwrap().is_empty());
    }
}
