//! Encrypted records to be written, and how much plaintext is in those that have been.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use super::keys::{HEADER, Key, Kind, OVERHEAD, RECORD};

/// Plaintext that is encrypted for one write.
const BATCH: usize = 16 * RECORD;
/// The alert that ends a direction.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// The message that the next record has another key, which asks for none of the peer's.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// What goes to the peer.
pub(super) struct Outgoing {
    key: Key,
    /// How many records the key may encrypt.
    pub(super) records_of_a_key: u64,
    /// Whether the peer wants the next record to have another key.
    pub(super) wants_next_key: bool,
    /// Records, up to `end`.
    bytes: Vec<u8>,
    end: usize,
    /// How many of the bytes have been written.
    written: usize,
    /// Ends of records that are not written whole, each with the plaintext of a caller in it.
    marks: VecDeque<(usize, usize)>,
    /// Bytes of plaintext in written records that no caller of `write` has been told of yet.
    untold: usize,
}

impl Outgoing {
    pub(super) fn new(key: Key, records_of_a_key: u64) -> Outgoing {
        Outgoing {
            key,
            records_of_a_key,
            wants_next_key: false,
            bytes: Vec::new(),
            end: 0,
            written: 0,
            marks: VecDeque::new(),
            untold: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.written == self.end
    }

    /// What is to be written.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..self.end]
    }

    /// Notes that so many more bytes were written; returns the plaintext of the records that are
    /// now complete.
    pub(super) fn advance(&mut self, count: usize) -> usize {
        self.written += count;
        let mut plain = 0;
        while let Some((end, bytes)) = self.marks.front().copied()
            && end <= self.written
        {
            plain += bytes;
            self.marks.pop_front();
        }
        if self.is_empty() {
            (self.end, self.written) = (0, 0);
        }
        self.untold -= plain;
        plain
    }

    /// Encrypts bytes of `buffers` after the first `skip`, at most a batch; returns how many.
    pub(super) fn seal(
        &mut self,
        buffers: &[IoSlice<'_>],
        skip: usize,
        next_key: impl FnOnce() -> io::Result<Key>,
    ) -> io::Result<usize> {
        if self.wants_next_key || self.is_key_used_up() {
            self.record(Kind::Handshake, KEY_UPDATE.len(), |room| {
                room.copy_from_slice(&KEY_UPDATE)
            })?;
            self.key = next_key()?;
            self.wants_next_key = false;
        }
        let mut source = Source::new(buffers, skip);
        let before = self.untold;
        while source.left > 0 && self.untold - before < BATCH && !self.is_key_used_up() {
            let plain = source.left.min(RECORD);
            self.record(Kind::Data, plain, |room| source.fill(room))?;
            self.untold += plain;
        }
        Ok(self.untold - before)
    }

    /// Whether the key may encrypt no more than the record that says so.
    fn is_key_used_up(&self) -> bool {
        self.key.used() >= self.records_of_a_key - 1
    }

    /// The alert that ends the stream.
    pub(super) fn seal_the_end(&mut self) -> io::Result<()> {
        self.record(Kind::Alert, CLOSE_NOTIFY.len(), |room| room.copy_from_slice(&CLOSE_NOTIFY))
    }

    /// Appends a record with so much plaintext.
    pub(super) fn record(
        &mut self,
        kind: Kind,
        plain: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> io::Result<()> {
        let end = self.end + plain + OVERHEAD;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let record = &mut self.bytes[self.end..end];
        fill(&mut record[HEADER..HEADER + plain]);
        self.key.seal(kind, record)?;
        self.end = end;
        self.marks.push_back((end, if kind == Kind::Data { plain } else { 0 }));
        Ok(())
    }
}

#[cfg(test)]
impl Outgoing {
    /// How many records the present key has encrypted.
    pub(super) fn key_is_used(&self) -> u64 {
        self.key.used()
    }

    /// Appends bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.splice(self.end.., bytes.iter().copied());
        self.end += bytes.len();
    }
}

/// Bytes of several buffers, one behind another.
struct Source<'a> {
    buffers: &'a [IoSlice<'a>],
    /// Where in the first buffer.
    at: usize,
    left: usize,
}

impl<'a> Source<'a> {
    /// All but the first `skip` bytes, of which there must be so many.
    fn new(buffers: &'a [IoSlice<'a>], skip: usize) -> Source<'a> {
        let total: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut source = Source { buffers, at: skip, left: total - skip };
        source.pass();
        source
    }

    /// Passes buffers that are used up.
    fn pass(&mut self) {
        while let [first, others @ ..] = self.buffers
            && self.at >= first.len()
        {
            self.at -= first.len();
            self.buffers = others;
        }
    }

    /// Fills `room`, for which enough must be left.
    fn fill(&mut self, mut room: &mut [u8]) {
        self.left -= room.len();
        while let [first, ..] = self.buffers
            && !room.is_empty()
        {
            let count = room.len().min(first.len() - self.at);
            let (now, later) = room.split_at_mut(count);
            now.copy_from_slice(&first[self.at..self.at + count]);
            room = later;
            self.at += count;
            self.pass();
        }
    }
}
