//! Frames on their way out: numbered, batched, and kept until the other side has taken them over.

use std::collections::VecDeque;
use std::mem::MaybeUninit;

use outboard_wire::Writer;
use outboard_wire::limits::MAX_FRAME;

use crate::{ProtocolError, TooLong};

/// Bytes that leave in one write: whole frames, in order.
#[derive(Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    last: u64,
}

impl Batch {
    /// What to write.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of the last frame in it.
    pub fn last(&self) -> u64 {
        self.last
    }
}

/// Where things are in one direction's header. The payload length is always the first field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub(crate) header: usize,
    pub(crate) seq_at: usize,
    /// The second field (`u16` after the length) of frames that have no number is at least this.
    pub(crate) unnumbered: u16,
}

#[derive(Debug)]
pub(crate) struct Window {
    layout: Layout,
    /// Frames that no one has taken for writing.
    pending: Writer,
    /// Number of the last frame made.
    last: u64,
    /// Number of the last frame that the other side has taken over.
    taken: u64,
    /// Whether frames are kept until taken over.
    retain: bool,
    /// Batches written and not taken over yet, oldest first.
    kept: VecDeque<Batch>,
    kept_bytes: usize,
    /// Empty buffers to use next. Of frames that are kept, many are taken over at once.
    spare: Vec<Vec<u8>>,
    /// Bytes they can hold.
    spare_bytes: usize,
}

/// The largest buffer that is made before it is needed, in bytes.
const MOST_AHEAD: usize = 16 << 10;
/// Spare buffers beyond this are given back, in bytes.
const KEEP_SPARE: usize = 1 << 20;

impl Window {
    pub(crate) fn new(layout: Layout, retain: bool) -> Window {
        Window {
            layout,
            pending: Writer::new(),
            last: 0,
            taken: 0,
            retain,
            kept: VecDeque::new(),
            kept_bytes: 0,
            spare: Vec::new(),
            spare_bytes: 0,
        }
    }

    /// Appends a frame: `header` writes a header whose length is patched afterwards, `payload` the
    /// rest. If the payload is too long, or its writer panics, nothing is appended.
    #[inline]
    pub(crate) fn push(
        &mut self,
        numbered: bool,
        header: impl FnOnce(&mut Writer, u32),
        payload: impl FnOnce(&mut Writer),
    ) -> Result<u64, TooLong> {
        let number = if numbered { self.last + 1 } else { 0 };
        let mut frame =
            Frame { start: self.pending.len(), pending: &mut self.pending, complete: false };
        header(frame.pending, number as u32);
        let body = frame.start + self.layout.header;
        payload(frame.pending);
        let len = frame.pending.len() - body;
        if len > MAX_FRAME {
            return Err(TooLong { len, limit: MAX_FRAME });
        }
        frame.pending.patch_u32(frame.start, len as u32);
        frame.complete = true;
        drop(frame);
        if numbered {
            self.last = number;
        }
        Ok(number)
    }

    #[inline]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    #[inline]
    pub(crate) fn room(&mut self) -> &[MaybeUninit<u8>] {
        self.pending.room()
    }

    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub(crate) fn take(&mut self) -> Option<Batch> {
        if self.pending.is_empty() {
            return None;
        }
        let spare = match self.spare.pop() {
            Some(spare) => {
                self.spare_bytes -= spare.capacity();
                spare
            }
            // The next batch is likely to be as large, and need not grow to that.
            None => Vec::with_capacity(self.pending.len().min(MOST_AHEAD)),
        };
        let bytes = core::mem::replace(&mut self.pending, Writer::append_to(spare)).into_vec();
        Some(Batch { bytes, last: self.last })
    }

    pub(crate) fn done(&mut self, batch: Batch) {
        if self.retain && batch.last > self.taken {
            self.kept_bytes += batch.bytes.len();
            self.kept.push_back(batch);
        } else {
            self.recycle(batch);
        }
    }

    pub(crate) fn acknowledge(&mut self, taken: u64) -> Result<(), ProtocolError> {
        if taken > self.last {
            return Err(ProtocolError::Acknowledged { claimed: taken, sent: self.last });
        }
        self.taken = self.taken.max(taken);
        while let Some(batch) = self.kept.pop_front_if(|batch| batch.last <= self.taken) {
            self.kept_bytes -= batch.bytes.len();
            self.recycle(batch);
        }
        Ok(())
    }

    /// Puts everything after `taken` back in front of what is pending.
    pub(crate) fn resume(&mut self, taken: u64) -> Result<(), ProtocolError> {
        self.acknowledge(taken)?;
        let mut again = Vec::new();
        for batch in self.kept.drain(..) {
            self.layout.after(&batch.bytes, taken, &mut again);
        }
        self.kept_bytes = 0;
        again.extend_from_slice(self.pending.as_slice());
        self.pending = Writer::append_to(again);
        Ok(())
    }

    fn recycle(&mut self, batch: Batch) {
        let mut bytes = batch.bytes;
        if self.spare_bytes + bytes.capacity() <= KEEP_SPARE {
            bytes.clear();
            self.spare_bytes += bytes.capacity();
            self.spare.push(bytes);
        }
    }
}

impl Layout {
    /// Appends to `out` those of the frames in `bytes` that are numbered, and after `taken`.
    fn after(self, bytes: &[u8], taken: u64, out: &mut Vec<u8>) {
        let word = |at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes)
        };
        let mut at = 0;
        // These are our own frames, so the header is always there; a stray byte at the end would be
        // dropped.
        while let (Some(len), Some(seq)) = (word(at), word(at + self.seq_at)) {
            let end = at + self.header + len as usize;
            let Some(frame) = bytes.get(at..end) else { break };
            let numbered = u16::from_le_bytes([frame[4], frame[5]]) < self.unnumbered;
            if numbered && outboard_wire::frame::widen(seq, taken) > taken {
                out.extend_from_slice(frame);
            }
            at = end;
        }
    }
}

/// A frame being written; unless completed, it vanishes again.
struct Frame<'a> {
    pending: &'a mut Writer,
    start: usize,
    complete: bool,
}

impl Drop for Frame<'_> {
    fn drop(&mut self) {
        if !self.complete {
            self.pending.truncate(self.start);
        }
    }
}
