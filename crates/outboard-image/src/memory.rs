//! Reading memory of unknown extent without unsafe code: who holds the pointer implements
//! [`Memory`].

use crate::error::Error;

/// Memory that can be read by address.
///
/// A driver call gets an image as a bare pointer. The caller that may dereference it implements
/// this trait; everything here then works on numbers.
pub trait Memory {
    /// Fills `buf` from `addr`; false if that memory cannot be read.
    ///
    /// Implementations may assume nothing about `addr`: it can come from a damaged image.
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool;

    /// Fills `buf` from `addr`, but reads nothing behind the first zero, and returns how many bytes
    /// it read: fewer than there is room for if the last one is that zero, or the memory ends.
    fn read_text(&self, addr: u64, buf: &mut [u8]) -> usize {
        for index in 0..buf.len() {
            let byte = &mut buf[index..=index];
            if !addr.checked_add(index as u64).is_some_and(|at| self.read(at, byte)) {
                return index;
            }
            if byte[0] == 0 {
                return index + 1;
            }
        }
        buf.len()
    }
}

/// Addresses are offsets into the slice.
impl Memory for [u8] {
    fn read(&self, addr: u64, buf: &mut [u8]) -> bool {
        let found = usize::try_from(addr)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?))
            .and_then(|range| self.get(range));
        match found {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

/// Reads `N` bytes at `addr`.
pub(crate) fn read<const N: usize>(
    memory: &(impl Memory + ?Sized),
    addr: u64,
) -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    if addr.checked_add(N as u64).is_some() && memory.read(addr, &mut bytes) {
        Ok(bytes)
    } else {
        Err(Error::Unreadable { addr, len: N })
    }
}

/// Little-endian fields of a byte array; the caller keeps offsets within bounds, beyond them zeros
/// are read.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    field(bytes, at).map_or(0, u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, u64::from_le_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}
