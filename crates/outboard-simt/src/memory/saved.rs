//! Device memory put elsewhere while nobody uses it, and back to the same addresses.

use super::Memory;
use super::reserved::named_file;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What was in device memory.
pub struct Saved {
    file: File,
    /// First address and bytes of each allocation, in the file's order.
    ranges: Vec<(u64, u64)>,
}

impl Memory {
    /// Takes what is in all allocations and gives the whole pages of large ones back to the system.
    /// These read as zero until [`Memory::restore`].
    ///
    /// # Safety
    /// Nothing uses device memory until it has been restored.
    ///
    /// # Errors
    /// The system's error if the contents cannot be written to a file in memory; the allocations
    /// keep them then.
    pub unsafe fn save(&self) -> io::Result<Saved> {
        let ranges: Vec<(u64, u64)> =
            self.device.lock().live.iter().map(|(address, bytes, ())| (address, bytes)).collect();
        let all = ranges.iter().map(|(_, bytes)| bytes).sum();
        let file = File::from(named_file("outboard-saved-memory", all)?);
        let mut at = 0;
        for (address, bytes) in &ranges {
            // SAFETY: a live allocation, which nothing writes to, as the caller says.
            let memory =
                unsafe { std::slice::from_raw_parts(*address as *const u8, *bytes as usize) };
            file.write_all_at(memory, at)?;
            at += bytes;
        }
        for (address, bytes) in &ranges {
            self.release_pages(*address, *bytes);
        }
        Ok(Saved { file, ranges })
    }

    /// Puts back what was taken.
    ///
    /// # Safety
    /// It was taken from this memory, which nothing has used since.
    ///
    /// # Errors
    /// The system's error if the contents cannot be read back; those of later allocations are lost
    /// then.
    pub unsafe fn restore(&self, saved: &Saved) -> io::Result<()> {
        let mut at = 0;
        for (address, bytes) in &saved.ranges {
            // SAFETY: still allocated, as nothing has used the memory since.
            let memory =
                unsafe { std::slice::from_raw_parts_mut(*address as *mut u8, *bytes as usize) };
            saved.file.read_exact_at(memory, at)?;
            at += bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_to_where_it_was() {
        let memory = Memory::new(16 << 20, 1 << 40).unwrap();
        let places: Vec<(u64, u64)> =
            [100, 4096, 1 << 20].map(|bytes| (memory.alloc(bytes, 1).unwrap(), bytes)).into();
        // SAFETY: allocated above.
        let bytes = |(at, len): (u64, u64)| unsafe {
            std::slice::from_raw_parts_mut(at as *mut u8, len as usize)
        };
        for (fill, place) in places.iter().enumerate() {
            bytes(*place).fill(fill as u8 + 7);
        }
        // SAFETY: nothing else uses it.
        let saved = unsafe { memory.save() }.unwrap();
        // The first and the last page may be shared with neighbours.
        let (at, len) = places[2];
        let whole = bytes((at + 4096, len - 8192));
        assert!(whole.iter().all(|byte| *byte == 0), "the pages are gone");
        // SAFETY: as above.
        unsafe { memory.restore(&saved) }.unwrap();
        for (fill, place) in places.iter().enumerate() {
            assert!(bytes(*place).iter().all(|byte| *byte == fill as u8 + 7), "{place:?}");
        }
    }
}
