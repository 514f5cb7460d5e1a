//! Boxes of the program's memory, read and written in pieces.

use outboard_wire::HostPtr;

/// A box of the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HostBox {
    pub(super) address: HostPtr,
    /// Bytes from row to row, rows from slice to slice.
    pub(super) pitch: u64,
    pub(super) height: u64,
    /// Bytes of a row, rows of a slice, slices.
    pub(super) extent: [u64; 3],
}

impl HostBox {
    /// How many bytes it has, without the gaps between its rows.
    pub(super) fn bytes(&self) -> u64 {
        let [width, rows, slices] = self.extent;
        width.saturating_mul(rows).saturating_mul(slices)
    }

    /// Whether any of its bytes, or of those between its rows, lies in a range of addresses.
    pub(super) fn meets(&self, range: &std::ops::Range<HostPtr>) -> bool {
        let [width, rows, slices] = self.extent;
        let above = self
            .height
            .saturating_mul(slices.saturating_sub(1))
            .saturating_add(rows.saturating_sub(1));
        let end =
            self.address.saturating_add(self.pitch.saturating_mul(above)).saturating_add(width);
        self.address < range.end && range.start < end
    }

    /// Calls with address and length of each stretch of memory that makes up bytes `at..at + len`
    /// of the box. `None` if there are not as many.
    fn stretches(&self, at: u64, len: usize, mut each: impl FnMut(HostPtr, usize)) -> Option<()> {
        let [width, rows, slices] = self.extent;
        let end = at.checked_add(len as u64)?;
        if end > width.checked_mul(rows)?.checked_mul(slices)? {
            return None;
        }
        let mut at = at;
        while at < end {
            let (row, x) = (at / width, at % width);
            let (slice, y) = (row / rows, row % rows);
            let piece = (width - x).min(end - at);
            each(self.address.offset((slice * self.height + y) * self.pitch + x), piece as usize);
            at += piece;
        }
        Some(())
    }

    pub(super) fn read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        self.stretches(at, len, |address, len| {
            // SAFETY: the program keeps the memory of a copy node readable while the graph may run.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(address.pointer(), len) });
        })?;
        Some(bytes)
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Option<()> {
        let mut rest = bytes;
        self.stretches(at, bytes.len(), |address, len| {
            let (piece, later) = rest.split_at(len);
            // SAFETY: the program keeps the memory of a copy node writable while the graph may run.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), address.pointer(), len) };
            rest = later;
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_counted_row_by_row() {
        let memory: Vec<u8> = (0..64).collect();
        let mut target = vec![0u8; 64];
        // Rows of 3 bytes, 8 apart; slices of 2 rows, 4 rows apart.
        let at = |memory: &[u8]| HostBox {
            address: HostPtr::of(memory.as_ptr()).offset(1),
            pitch: 8,
            height: 4,
            extent: [3, 2, 2],
        };
        let source = at(&memory);
        let all = source.read(0, 12).unwrap();
        assert_eq!(all, [1, 2, 3, 9, 10, 11, 33, 34, 35, 41, 42, 43]);
        assert_eq!(source.read(2, 5).unwrap(), all[2..7]);
        assert!(source.read(8, 5).is_none() && source.read(u64::MAX, 2).is_none());
        let sink = at(&target);
        sink.write(0, &all[..7]).unwrap();
        sink.write(7, &all[7..]).unwrap();
        assert_eq!(sink.read(0, 12).unwrap(), all);
        assert!(sink.write(12, &[1]).is_none());
        assert_eq!(std::mem::take(&mut target)[4..9], [0; 5]);
    }
}
