//! Memory for a function's inputs and outputs.

use outboard_nvml::Argument;

/// A library of another release than the one described may write a little more than was asked for;
/// that must hit nothing.
const SLACK: usize = 4096;

/// Zeroed memory, aligned for any structure, that begins with what the client sent.
pub struct Block {
    words: Vec<u64>,
    bytes: usize,
}

impl Block {
    /// The memory of an argument; none for those that are not memory.
    pub fn of(argument: &Argument<'_>) -> Block {
        let Argument::Memory { room, given } = argument else {
            return Block { words: Vec::new(), bytes: 0 };
        };
        let mut block = Block { words: vec![0; (room + SLACK).div_ceil(8)], bytes: *room };
        block.bytes_mut()[..given.len()].copy_from_slice(given);
        block
    }

    /// What is there.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the words are that many bytes and more, and any bytes are bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.bytes) }
    }

    /// The same, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; whatever is stored, words stay words.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.bytes) }
    }

    /// Where it is, for a C function.
    pub fn address(&mut self) -> u64 {
        self.words.as_mut_ptr().expose_provenance() as u64
    }

    /// Stores a plain C value at the beginning; what there is no room for is cut off, as for
    /// structures that have grown.
    pub fn put<T: Copy>(&mut self, value: &T) {
        let len = size_of::<T>().min(self.bytes);
        // SAFETY: a value of C, read as bytes; what is between its fields was zeroed by whoever
        // made it.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), len) };
        self.bytes_mut()[..len].copy_from_slice(bytes);
    }

    /// A plain C value of numbers, if all of it is there.
    pub fn get<T: Copy>(&self) -> Option<T> {
        // SAFETY: as many bytes are there, aligned for any structure, and any bytes are numbers.
        (size_of::<T>() <= self.bytes).then(|| unsafe { self.words.as_ptr().cast::<T>().read() })
    }

    /// Stores a string with its final zero; false if there is no room.
    pub fn put_text(&mut self, text: &str) -> bool {
        let bytes = self.bytes_mut();
        if text.len() >= bytes.len() {
            return false;
        }
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes[text.len()] = 0;
        true
    }
}
