//! Encrypted records to be written, and how much plaintext is in those that have been.

/// Bytes of a record's header, the last two of which are the length of the rest.
const HEADER: usize = 5;
/// The most plaintext in a record.
pub(super) const RECORD: usize = 16 << 10;
/// What a record takes beyond its plaintext: header, type, tag.
pub(super) const OVERHEAD: usize = HEADER + 1 + 16;

/// Records that are to be written.
#[derive(Default)]
pub(super) struct Sealed {
    bytes: Vec<u8>,
    /// How many of the bytes have been written.
    written: usize,
    /// Ends of records that are not written whole, each with the plaintext in it.
    marks: std::collections::VecDeque<(usize, usize)>,
    /// Bytes of plaintext in written records that no caller of `write` has been told of yet.
    pub(super) untold: usize,
}

impl Sealed {
    pub(super) fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// What is to be written.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
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
            self.bytes.clear();
            self.written = 0;
        }
        self.untold -= plain;
        plain
    }

    /// Appends a record without plaintext of a caller.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.marks.push_back((self.bytes.len(), 0));
    }

    /// Has `encrypt` append the records of so much plaintext; calls it again with more room if it
    /// needs more.
    pub(super) fn seal<E>(
        &mut self,
        plain: usize,
        encrypt: impl FnMut(&mut [u8]) -> Result<usize, E>,
        wants: impl Fn(&E) -> Option<usize>,
    ) -> Result<(), E> {
        let before = self.bytes.len();
        let count = self.extend(plain + plain.div_ceil(RECORD) * OVERHEAD, encrypt, wants)?;
        self.mark(before, count, plain);
        Ok(())
    }

    /// Has `fill` append to at least `room` bytes of space; calls it again with more if it needs
    /// more.
    fn extend<E>(
        &mut self,
        mut room: usize,
        mut fill: impl FnMut(&mut [u8]) -> Result<usize, E>,
        wants: impl Fn(&E) -> Option<usize>,
    ) -> Result<usize, E> {
        let before = self.bytes.len();
        loop {
            self.bytes.resize(before + room, 0);
            match fill(&mut self.bytes[before..]) {
                Ok(count) => {
                    self.bytes.truncate(before + count);
                    return Ok(count);
                }
                Err(error) => match wants(&error) {
                    Some(wanted) if wanted > room => room = wanted,
                    _ => {
                        self.bytes.truncate(before);
                        return Err(error);
                    }
                },
            }
        }
    }

    /// Notes where the records of so much plaintext end. Records that rustls puts before them count
    /// with the first.
    fn mark(&mut self, before: usize, count: usize, plain: usize) {
        self.untold += plain;
        let records = plain.div_ceil(RECORD);
        let in_front = count.saturating_sub(plain + records * OVERHEAD);
        let (mut end, mut left) = (before + in_front, plain);
        while left > 0 {
            let part = left.min(RECORD);
            end += part + OVERHEAD;
            self.marks.push_back((end, part));
            left -= part;
        }
    }
}
