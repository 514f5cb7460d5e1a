//! The process's mappings of files, as the kernel lists them (`/proc/self/maps`), and which of
//! their pages the program has not written (`/proc/self/pagemap`).

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use crate::parts::files::Key;

/// A page is there, but in the swap; or is a file's.
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const PRESENT: u64 = 1 << 63;

/// The list, if the kernel shows it.
pub(super) fn list() -> io::Result<impl BufRead> {
    Ok(BufReader::new(File::open("/proc/self/maps")?))
}

/// A mapping of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    /// Where in the file the range begins.
    pub(super) offset: u64,
    pub(super) key: Key,
    name: String,
}

impl Mapping {
    /// All that the program cannot change the file by, in order of their addresses.
    pub(super) fn all(maps: impl BufRead) -> impl Iterator<Item = Mapping> {
        lines(maps).filter_map(|(range, rest)| Mapping::new(range, &rest))
    }

    /// The one that has all these bytes, if what the program writes there is not the file's.
    pub(super) fn of(maps: impl BufRead, bytes: &Range<u64>) -> Option<Mapping> {
        let (range, rest) = lines(maps).find(|(range, _)| range.end > bytes.start)?;
        let inside = range.start <= bytes.start && bytes.end <= range.end;
        if inside { Mapping::new(range, &rest) } else { None }
    }

    /// What the rest of a line says.
    fn new(range: Range<u64>, rest: &str) -> Option<Mapping> {
        let mut words = rest.splitn(5, ' ');
        let access = words.next()?;
        if !access.starts_with('r') || (access.contains('w') && access.ends_with('s')) {
            return None;
        }
        let offset = number(words.next()?)?;
        let (major, minor) = words.next()?.split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = words.next()?.parse().ok().filter(|inode| *inode != 0)?;
        let name = words.next()?.trim_start().to_owned();
        Some(Mapping { range, offset, key: (device, inode), name })
    }

    /// Opens the file, if its name still leads there.
    pub(super) fn open(&self) -> Option<File> {
        let file = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&self.name)
            .ok()?;
        let facts = file.metadata().ok()?;
        let (device, inode) = self.key;
        let same = facts.is_file()
            && facts.ino() == inode
            && (libc::major(facts.dev()), libc::minor(facts.dev())) == device;
        same.then_some(file)
    }
}

/// The addresses of each mapping, and what else its line says.
fn lines(maps: impl BufRead) -> impl Iterator<Item = (Range<u64>, String)> {
    maps.split(b'\n').map_while(Result::ok).filter_map(|line| {
        let line = String::from_utf8_lossy(&line).into_owned();
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        Some((number(start)?..number(end)?, rest.to_owned()))
    })
}

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
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
        let of = |bytes: Range<u64>| Mapping::of(MAPS.as_bytes(), &bytes);
        let found = of(0x7f10..0x7f40).unwrap();
        assert_eq!((found.offset, found.key), (0x1000, ((0xfd, 1), 42)));
        assert_eq!((found.range, found.name.as_str()), (0x7f00..0x7f40, "/data/a file"));
        assert_eq!(of(0x7f80..0x7f81).unwrap().name, "/data/read");
        // What is written there is the file's; two mappings; no file; no mapping.
        for none in [0x7f40..0x7f41, 0x7f30..0x7f50, 0x7fa0..0x7fb0, 0x10..0x20, 0x9000..0x9001] {
            assert_eq!(of(none.clone()), None, "{none:x?}");
        }
    }

    #[test]
    fn written_pages_are_not_the_files() {
        let path = std::env::temp_dir().join(format!("outboard-mapped-{}", std::process::id()));
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
        let mapping = Mapping::of(list().unwrap(), &bytes).unwrap();
        assert!(Mapping::all(list().unwrap()).any(|one| one == mapping));
        assert!(mapping.open().is_some());
        std::fs::remove_file(&path).unwrap();
        assert!(mapping.open().is_none());
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(memory, length) };
    }
}
