//! Transfers between a file and memory.

use std::sync::Arc;
use std::time::Instant;

use crate::files::File;
use crate::status::{INVALID, Result, require};
use crate::table::{Way, table};
use crate::types::Part;
use crate::{buffers, statistics};

/// A transfer that is well described.
pub(crate) struct Transfer {
    pub(crate) way: Way,
    pub(crate) file: Arc<File>,
    /// The address of memory as it may be registered.
    pub(crate) base: u64,
    pub(crate) base_offset: i64,
    pub(crate) bytes: usize,
    pub(crate) file_offset: i64,
}

impl Transfer {
    /// Moves the bytes; how many they were.
    ///
    /// # Safety
    /// If the memory is the host's, it is the program's for this transfer.
    pub(crate) unsafe fn make(&self) -> Result<usize> {
        let begun = Instant::now();
        // SAFETY: by the contract above.
        let moved = unsafe { self.move_bytes() };
        statistics::transferred(self.way, self.base, moved, begun.elapsed());
        moved
    }

    /// # Safety
    /// As [`Transfer::make`].
    unsafe fn move_bytes(&self) -> Result<usize> {
        let address = buffers::address(self.base, self.base_offset, self.bytes)?;
        require(self.file_offset >= 0 && isize::try_from(self.bytes).is_ok())?;
        if self.bytes == 0 {
            return Ok(0);
        }
        let memory = (address, self.bytes);
        // SAFETY: by the contract above.
        unsafe { table()?.transfer(self.way, self.file.number, memory, self.file_offset) }
    }
}

/// Parts of a vector at most, as the system has it.
const MOST_PARTS: usize = 1024;

/// Moves the bytes of several pieces of memory, which stand behind each other in the file. Ends at
/// the first that is not moved whole.
///
/// # Safety
/// As [`Transfer::make`], for each.
pub(crate) unsafe fn vector(
    way: Way,
    file: &Arc<File>,
    parts: &[Part],
    file_offset: i64,
) -> Result<usize> {
    require(parts.len() <= MOST_PARTS && file_offset >= 0)?;
    let all = parts.iter().try_fold(0usize, |all, part| all.checked_add(part.bytes));
    let all = all.and_then(|all| i64::try_from(all).ok()).ok_or(INVALID)?;
    require(file_offset.checked_add(all).is_some())?;
    let begun = Instant::now();
    let mut moved = 0;
    for part in parts.iter().filter(|part| part.bytes > 0) {
        let transfer = Transfer {
            way,
            file: Arc::clone(file),
            base: part.base as u64,
            base_offset: 0,
            bytes: part.bytes,
            file_offset: file_offset + moved as i64,
        };
        // SAFETY: by the contract above.
        match unsafe { transfer.move_bytes() } {
            Ok(more) => {
                moved += more;
                if more < part.bytes {
                    break;
                }
            }
            Err(_) if moved > 0 => break,
            Err(failure) => {
                statistics::transferred(way, part.base as u64, Err(failure), begun.elapsed());
                return Err(failure);
            }
        }
    }
    let base = parts.first().map_or(0, |part| part.base as u64);
    statistics::transferred(way, base, Ok(moved), begun.elapsed());
    Ok(moved)
}
