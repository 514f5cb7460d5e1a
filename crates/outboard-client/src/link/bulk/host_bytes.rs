//! A transfer's bytes in the application's memory: in one piece, or in the rows of a box.

use outboard_wire::boxes::{Extent, Layout};

/// Bytes in the application's memory. The creator of the value promised that they stay valid until
/// the transfer has ended.
#[derive(Debug, Clone, Copy)]
pub struct HostBytes {
    base: *mut u8,
    /// Where a chunk begins among the packed bytes.
    offset: u64,
    rows: Option<(Extent, Layout)>,
}

// SAFETY: only an address; those who use it rely on the promise above, which does not depend on the
// thread.
unsafe impl Send for HostBytes {}

impl From<*mut u8> for HostBytes {
    fn from(base: *mut u8) -> HostBytes {
        HostBytes { base, offset: 0, rows: None }
    }
}

impl From<*const u8> for HostBytes {
    fn from(base: *const u8) -> HostBytes {
        HostBytes::from(base.cast_mut())
    }
}

impl HostBytes {
    /// The rows of a box that begins at `base`; its bytes travel packed.
    pub fn rows(base: *mut u8, extent: Extent, layout: Layout) -> HostBytes {
        let rows = (!layout.is_packed(extent)).then_some((extent, layout));
        HostBytes { base, offset: 0, rows }
    }

    /// The place from `offset` packed bytes on.
    pub(crate) fn at(self, offset: u64) -> HostBytes {
        HostBytes { offset: self.offset + offset, ..self }
    }

    /// The address, if the bytes lie in one piece.
    pub(crate) fn contiguous(&self) -> Option<*mut u8> {
        self.rows.is_none().then(|| self.base.wrapping_add(self.offset as usize))
    }

    /// The first `len` bytes: where they are, or packed in `scratch`.
    ///
    /// # Safety
    /// They are valid for reads, as the promise says.
    pub(crate) unsafe fn read(self, len: usize, scratch: &mut Vec<u8>) -> &[u8] {
        if let Some(address) = self.contiguous() {
            // SAFETY: by the contract above.
            return unsafe { std::slice::from_raw_parts(address.cast_const(), len) };
        }
        scratch.clear();
        scratch.reserve(len);
        for (address, bytes) in self.pieces(len as u64) {
            // SAFETY: by the contract above, for each row of the box.
            scratch.extend_from_slice(unsafe {
                std::slice::from_raw_parts(address.cast_const(), bytes)
            });
        }
        scratch
    }

    /// Puts packed bytes where they belong.
    ///
    /// # Safety
    /// Their places are valid for writes, as the promise says.
    pub(super) unsafe fn write(&self, bytes: &[u8]) {
        // SAFETY: by the contract above.
        unsafe { self.scatter(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies the first `len` bytes, packed, to `to`.
    ///
    /// # Safety
    /// They are valid for reads, as the promise says, and `to` for writes.
    pub(in super::super) unsafe fn gather(&self, to: *mut u8, len: usize) {
        let mut at = 0;
        for (address, bytes) in self.pieces(len as u64) {
            // SAFETY: by the contract above, for each row of the box.
            unsafe { core::ptr::copy_nonoverlapping(address.cast_const(), to.add(at), bytes) };
            at += bytes;
        }
    }

    /// Copies `len` packed bytes at `from` to where they belong.
    ///
    /// # Safety
    /// Their places are valid for writes, as the promise says, and `from` for reads.
    pub(crate) unsafe fn scatter(&self, from: *const u8, len: usize) {
        let mut at = 0;
        for (address, bytes) in self.pieces(len as u64) {
            // SAFETY: by the contract above, for each row of the box.
            unsafe { core::ptr::copy_nonoverlapping(from.add(at), address, bytes) };
            at += bytes;
        }
    }

    /// Address and length of each piece of the first `len` bytes.
    fn pieces(&self, len: u64) -> impl Iterator<Item = (*mut u8, usize)> + use<> {
        let (base, range) = (self.base, self.offset..self.offset + len);
        let (extent, layout) = self.rows.unwrap_or((Extent::row(range.end), Layout::default()));
        extent.parts(range).flat_map(move |part| {
            let start = layout.offset(part.at).unwrap_or(0);
            let rows = part.extent.rows(layout);
            rows.map(move |(offset, bytes)| {
                (base.wrapping_add((start + offset) as usize), bytes as usize)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A box that is packed in pieces and unpacked in other pieces has its bytes again, and
        /// nothing else is written.
        #[test]
        fn rows_are_packed_and_unpacked(
            (width, height, depth) in (1u64..50, 1u64..9, 1u64..5),
            (gap, skip) in (0u64..7, 0u64..3),
            (first, second) in (1usize..400, 1usize..400),
        ) {
            let extent = Extent { width, height, depth };
            let layout = Layout { pitch: width + gap, slice: (width + gap) * (height + skip) };
            let span = layout.span(extent).unwrap() as usize;
            let mut source: Vec<u8> = (0..span).map(|i| (i % 251) as u8 + 1).collect();
            let place = HostBytes::rows(source.as_mut_ptr(), extent, layout);
            let total = extent.bytes().unwrap() as usize;
            let (mut packed, mut scratch) = (Vec::new(), Vec::new());
            for at in (0..total).step_by(first) {
                // SAFETY: `source` has the span of the box.
                packed.extend_from_slice(unsafe { place.at(at as u64).read(first.min(total - at), &mut scratch) });
            }
            prop_assert_eq!(packed.len(), total);
            let mut target = vec![0; span];
            let back = HostBytes::rows(target.as_mut_ptr(), extent, layout);
            for (index, piece) in packed.chunks(second).enumerate() {
                // SAFETY: `target` has the span of the box.
                unsafe { back.at((index * second) as u64).write(piece) };
            }
            let inside: std::collections::HashSet<usize> =
                extent.rows(layout).flat_map(|(at, bytes)| at as usize..(at + bytes) as usize).collect();
            for i in 0..span {
                prop_assert_eq!(target[i], if inside.contains(&i) { source[i] } else { 0 });
            }
        }
    }
}
