//! The process's mappings of files, and which of their pages the program has not written
//! (`/proc/self/pagemap`).

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use outboard_ranges::{FileNumbers, Mapping};

/// A page is there, but in the swap; or is a file's.
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const PRESENT: u64 = 1 << 63;

/// A mapping of a file that the program reads, and cannot change the file by.
pub(super) fn is_of_file(mapping: &Mapping) -> bool {
    mapping.file.is_some() && mapping.readable && !(mapping.writable && mapping.shared)
}

/// The one of these, in order of their addresses, that has all these bytes, if it is of a file.
pub(super) fn mapping_of(
    mut mappings: impl Iterator<Item = Mapping>,
    bytes: &Range<u64>,
) -> Option<Mapping> {
    let mapping = mappings.find(|mapping| mapping.range.end > bytes.start)?;
    let is_inside = mapping.range.start <= bytes.start && bytes.end <= mapping.range.end;
    Some(mapping).filter(|mapping| is_inside && is_of_file(mapping))
}

/// Opens the mapping's file, if its name still leads there.
pub(super) fn open_file(mapping: &Mapping) -> Option<File> {
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(&mapping.name)
        .ok()?;
    let facts = file.metadata().ok()?;
    let device = (libc::major(facts.dev()), libc::minor(facts.dev()));
    let found = FileNumbers { device, inode: facts.ino() };
    (facts.is_file() && mapping.file == Some(found)).then_some(file)
}

/// Whether the program has written to none of these pages, if the kernel says so.
pub(super) fn is_untouched(bytes: &Range<u64>) -> Option<bool> {
    // SAFETY: the call only asks.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let (first, end) = (bytes.start / page, bytes.end.div_ceil(page));
    let pagemap = File::open("/proc/self/pagemap").ok()?;
    let mut words = vec![0; 8 * (end - first).min(8192) as usize];
    let mut at = first;
    while at < end {
        let count = (end - at).min(8192) as usize;
        let words = &mut words[..8 * count];
        pagemap.read_exact_at(words, at * 8).ok()?;
        for word in words.chunks_exact(8) {
            let word = u64::from_ne_bytes(word.try_into().ok()?);
            if word & SWAPPED != 0 || (word & PRESENT != 0 && word & OF_FILE == 0) {
                return Some(false);
            }
        }
        at += count as u64;
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use outboard_ranges::{mappings, own_mappings};

    use super::*;

    const MAPS: &str = "\
55d0-55e0 r--p 00000000 08:02 173521                    /usr/bin/dbus-daemon
7f00-7f40 rw-p 00001000 fd:01 42                         /data/a file
7f40-7f80 rw-s 00000000 fd:01 43                         /data/shared
7f80-7fa0 r--s 00002000 fd:01 44                         /data/read
7fa0-7fb0 rw-p 00000000 00:00 0
";

    #[test]
    fn mappings_of_files_are_found() {
        let of = |bytes: Range<u64>| mapping_of(mappings(MAPS.as_bytes()), &bytes);
        let found = of(0x7f10..0x7f40).unwrap();
        let file = FileNumbers { device: (0xfd, 1), inode: 42 };
        assert_eq!((found.offset, found.file), (0x1000, Some(file)));
        assert_eq!(
            (found.range, found.name.as_path()),
            (0x7f00..0x7f40, Path::new("/data/a file"))
        );
        assert_eq!(of(0x7f80..0x7f81).unwrap().name, Path::new("/data/read"));
        // What is written there is the file's; two mappings; no file; no mapping.
        for none in [0x7f40..0x7f41, 0x7f30..0x7f50, 0x7fa0..0x7fb0, 0x10..0x20, 0x9000..0x9001] {
            assert_eq!(of(none.clone()), None, "{none:x?}");
        }
    }

    #[test]
    fn written_pages_are_not_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mapped");
        std::fs::write(&path, vec![7_u8; 4 << 16]).unwrap();
        let file = File::open(&path).unwrap();
        let (length, access) = (4 << 16, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping of a file that stays.
        let memory = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                length,
                access,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let bytes = memory as u64..memory as u64 + length as u64;
        let first = memory.cast::<u8>();
        assert_eq!(is_untouched(&bytes), Some(true));
        // SAFETY: within the mapping.
        assert_eq!(unsafe { first.add(100).read_volatile() }, 7);
        assert_eq!(is_untouched(&bytes), Some(true));
        // SAFETY: within the mapping.
        unsafe { first.add(200_000).write_volatile(1) };
        assert_eq!(is_untouched(&bytes), Some(false));
        assert_eq!(is_untouched(&(bytes.start..bytes.start + 65536)), Some(true));
        let mapping = mapping_of(own_mappings().unwrap(), &bytes).unwrap();
        assert!(own_mappings().unwrap().filter(is_of_file).any(|one| one == mapping));
        assert!(open_file(&mapping).is_some());
        std::fs::remove_file(&path).unwrap();
        assert!(open_file(&mapping).is_none());
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(memory, length) };
    }
}
