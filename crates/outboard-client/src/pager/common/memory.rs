//! The program's bytes of a region, as this library reads and writes them.

use std::io;
use std::ops::Range;

use outboard_wire::HostPtr;

use crate::pager::difference::WORD;
use crate::pager::pages::{Access, Shared};

/// Where they are.
#[derive(Debug)]
pub(super) enum Memory {
    /// Whole pages, which the program sees through a view that can be protected.
    Pages(Shared),
    /// Less than a page of registered memory, among bytes that were not registered: it is never
    /// protected, since those may be touched under the allocator's locks.
    Part(HostPtr),
}

impl Memory {
    pub(super) fn is_protectable(&self) -> bool {
        matches!(self, Memory::Pages(_))
    }

    fn at(&self, offset: usize) -> *mut u8 {
        match self {
            Memory::Pages(pages) => pages.inner(offset),
            Memory::Part(address) => address.offset(offset as u64).pointer(),
        }
    }

    /// The bytes as they are now: the program may write to them meanwhile.
    pub(super) fn read(&self, bytes: &Range<usize>) -> Vec<u8> {
        let mut data = Vec::<u8>::with_capacity(bytes.len());
        // SAFETY: the region's own bytes, which stay until it is removed; the vector has room.
        unsafe {
            core::ptr::copy_nonoverlapping(
                self.at(bytes.start).cast_const(),
                data.as_mut_ptr(),
                bytes.len(),
            );
            data.set_len(bytes.len());
        }
        data
    }

    /// Writes a word, or less of memory that has no whole ones.
    pub(super) fn write(&self, offset: usize, data: &[u8]) {
        let at = self.at(offset);
        match <[u8; WORD]>::try_from(data) {
            // SAFETY: the region's own bytes, and aligned.
            Ok(word) if (at as usize).is_multiple_of(WORD) => unsafe {
                at.cast::<u32>().write_volatile(u32::from_ne_bytes(word));
            },
            _ => {
                for (index, byte) in data.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { at.add(index).write_volatile(*byte) };
                }
            }
        }
    }

    /// The unit in which two sides may write to it at the same time.
    pub(super) fn unit(&self) -> usize {
        match self {
            Memory::Pages(_) => WORD,
            Memory::Part(..) => 1,
        }
    }

    /// Changes what the program may do with these bytes, whole pages ([`Shared::change`]).
    pub(super) fn change(&self, bytes: &Range<usize>, from: Access, to: Access) -> io::Result<()> {
        match self {
            Memory::Pages(pages) => pages.change(bytes, from, to),
            Memory::Part(..) => Ok(()),
        }
    }

    /// The program may do nothing with these bytes, whole pages.
    pub(super) fn close(&self, bytes: &Range<usize>) -> io::Result<()> {
        match self {
            Memory::Pages(pages) => pages.close(bytes),
            Memory::Part(..) => Ok(()),
        }
    }

    /// Whether it is known of each touch that is noticed if it is a write.
    pub(super) fn tells_writes(&self) -> bool {
        match self {
            Memory::Pages(pages) => pages.tells_writes(),
            Memory::Part(..) => false,
        }
    }

    /// The parts that may be anything but zeros.
    pub(super) fn touched(&self, bytes: &Range<usize>) -> Vec<Range<usize>> {
        match self {
            Memory::Pages(pages) => pages.touched(bytes),
            Memory::Part(..) => std::iter::once(bytes.clone()).collect(),
        }
    }

    /// The program has its memory for itself again.
    pub(super) fn give_back(&mut self) {
        if let Memory::Pages(pages) = self {
            let _ = pages.give_back();
        }
    }
}
