//! Bytes received and not yet taken apart.

/// A growing buffer that is filled at the end and emptied at the front.
///
/// It grows only as bytes arrive, never by what a header promises, and gives memory back after a
/// large frame.
#[derive(Debug)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Size at rest, in bytes.
const BYTES_AT_REST: usize = 64 << 10;
/// Least room offered to a read, in bytes.
const LEAST_ROOM: usize = 16 << 10;
/// Above this size, an empty buffer goes back to its usual size.
const KEEP: usize = 1 << 20;

impl Default for ReceiveBuffer {
    fn default() -> ReceiveBuffer {
        ReceiveBuffer::new()
    }
}

impl ReceiveBuffer {
    /// An empty buffer.
    pub const fn new() -> ReceiveBuffer {
        ReceiveBuffer { bytes: Vec::new(), start: 0, end: 0 }
    }

    /// Bytes received and not consumed.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Room for the next read; tell how much was used with [`filled`](Self::filled).
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > KEEP {
                self.bytes = Vec::new();
            }
        }
        if self.bytes.len() - self.end < LEAST_ROOM && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.bytes.len() - self.end < LEAST_ROOM {
            let len = (self.bytes.len() * 2).max(BYTES_AT_REST);
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[self.end..]
    }

    /// `count` bytes of the room now hold received bytes.
    ///
    /// # Panics
    /// If the room was smaller.
    pub fn filled(&mut self, count: usize) {
        assert!(
            count <= self.bytes.len() - self.end,
            "more bytes were received than there was room for"
        );
        self.end += count;
    }

    /// Appends received bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled(count);
            bytes = &bytes[count..];
        }
    }

    /// Drops `count` bytes at the front.
    ///
    /// # Panics
    /// If fewer are unread.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "more bytes were consumed than received");
        self.start += count;
    }

    /// The next `count` unread bytes, consumed, if they are all there.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Option<&[u8]> {
        if count > self.end - self.start {
            return None;
        }
        let start = self.start;
        self.start += count;
        Some(&self.bytes[start..start + count])
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Most bytes of a step.
    const MOST: usize = if cfg!(miri) { 300 } else { 90_000 };

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(steps in proptest::collection::vec((0..MOST, 0..MOST), 1..20)) {
            let mut buffer = ReceiveBuffer::new();
            let (mut written, mut read) = (0u64, 0u64);
            for (push, consume) in steps {
                let bytes: Vec<u8> = (written..written + push as u64).map(|i| (i % 251) as u8).collect();
                written += push as u64;
                buffer.push(&bytes);
                let count = consume.min(buffer.unread().len());
                for (i, byte) in buffer.unread()[..count].iter().enumerate() {
                    prop_assert_eq!(*byte, ((read + i as u64) % 251) as u8);
                }
                buffer.consume(count);
                read += count as u64;
                prop_assert_eq!(buffer.unread().len() as u64, written - read);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri fills each of its 8 MiB by itself, which takes minutes")]
    fn a_large_frame_does_not_stay_in_memory() {
        let mut buffer = ReceiveBuffer::new();
        buffer.push(&vec![0; 4 << 20]);
        assert!(buffer.capacity() >= 4 << 20);
        buffer.consume(4 << 20);
        buffer.room();
        assert!(buffer.capacity() <= KEEP);
    }
}
