//! Copies to the device from memory that is a file's: the server reads the file itself.
//!
//! Off unless `OUTBOARD_FILES=mapped` (`outboard run --files`). The kernel says which memory is a
//! mapping of a file (`/proc/self/maps`) and which of its pages the program has not written
//! (`/proc/self/pagemap`). Nothing is tracked: a copy from memory that is anything else, or of a
//! file that the server does not have, is made as ever.

use std::fs::File as Listed;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use super::{File, Memory, by_reference, open};
use crate::backend::{Backend, Extent, StreamId, UnifiedPtr};
use crate::capture;
use crate::context::Here;
use crate::copy::{Copy, Operand};
use crate::memory::{Found, check_found, find};
use crate::parts::files::Key;
use crate::process::Process;

/// Smaller copies are not worth the questions.
const LEAST: u64 = 4 << 20;
/// So many files are kept open.
const MOST_FILES: usize = 64;

/// A page is there, but in the swap; or is a file's.
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;
const PRESENT: u64 = 1 << 63;

/// Has the server read the bytes, if they are a file's and nothing of this context is under way
/// that the copy would have to wait for; whether it did.
pub(crate) fn upload<B: Backend>(
    process: &'static Process<B>,
    (here, stream): (&Here, StreamId),
    copy: &Copy,
) -> bool {
    if !process.files.maps() || process.files.shares_none(here.id) {
        return false;
    }
    let Some((to, from, bytes)) = row(copy).filter(|(.., bytes)| *bytes >= LEAST) else {
        return false;
    };
    let (Ok(count), Some(end)) = (usize::try_from(bytes), from.0.checked_add(bytes)) else {
        return false;
    };
    let is_plain = |found: &Found| {
        super::is_plain(found.2.kind) && check_found(process, found, to, bytes).is_ok()
    };
    if !find(process, to).as_ref().is_some_and(is_plain) || find(process, from).is_some() {
        return false;
    }
    if capture::refuse(process, here, stream).is_err() {
        return false;
    }
    let Some((file, offset)) = file_of(process, from.0..end) else { return false };
    let idle = |stream| process.backend.stream_query(here.id, stream).is_ok();
    if !idle(stream) || (stream != StreamId::LEGACY && !idle(StreamId::LEGACY)) {
        return false;
    }
    let memory = Memory { here: here.clone(), address: to.device(), plain: true };
    let read = by_reference::read(process, &file, &memory, count, offset);
    if read != Some(Ok(count)) {
        return false;
    }
    process.files.read.count(count, true);
    true
}

/// Destination, source and size of a copy of bytes that follow each other; no array's.
fn row(copy: &Copy) -> Option<(UnifiedPtr, UnifiedPtr, u64)> {
    let address = |operand: &Operand| match operand {
        Operand::Host(at) => Some(at.unified()),
        Operand::Device(at) => Some(at.unified()),
        Operand::Unified(at) => Some(*at),
        Operand::Array(_) => None,
    };
    let bytes = copy.extent.width;
    let is_row = copy.extent == Extent::row(bytes);
    let (to, from) = (address(&copy.dst.operand)?, address(&copy.src.operand)?);
    (is_row && copy.dst.at == (0, 0, 0) && copy.src.at == (0, 0, 0)).then_some((to, from, bytes))
}

/// The file of these bytes, and where in it they are.
fn file_of<B: Backend>(
    process: &'static Process<B>,
    bytes: Range<u64>,
) -> Option<(Arc<File>, u64)> {
    let mapping = Mapping::of(BufReader::new(Listed::open("/proc/self/maps").ok()?), &bytes)?;
    if !is_untouched(&bytes)? {
        return None;
    }
    let offset = mapping.offset + (bytes.start - mapping.range.start);
    let mut kept = process.files.mapped.lock();
    if let Some((_, file)) = kept.iter().find(|(key, _)| *key == mapping.key) {
        return Some((Arc::clone(file), offset));
    }
    let descriptor = mapping.open()?;
    let handle = open(process, descriptor.as_raw_fd(), false).ok()?;
    let file = process.files.table.look(handle).map(|file| Arc::clone(&file))?;
    if kept.len() >= MOST_FILES {
        let (_, oldest) = kept.remove(0);
        if let Some(oldest) = process.files.table.remove(oldest.handle) {
            oldest.close(process);
        }
    }
    kept.push((mapping.key, Arc::clone(&file)));
    Some((file, offset))
}

/// A mapping of a file.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    offset: u64,
    key: Key,
    name: String,
}

impl Mapping {
    /// The one that has all these bytes, if what the program writes there is not the file's.
    fn of(maps: impl BufRead, bytes: &Range<u64>) -> Option<Mapping> {
        for line in maps.split(b'\n') {
            let line = String::from_utf8_lossy(&line.ok()?).into_owned();
            let (addresses, rest) = line.split_once(' ')?;
            let (start, end) = addresses.split_once('-')?;
            let range = number(start)?..number(end)?;
            if range.end <= bytes.start {
                continue;
            }
            let inside = range.start <= bytes.start && bytes.end <= range.end;
            return if inside { Mapping::new(range, rest) } else { None };
        }
        None
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
    fn open(&self) -> Option<OwnedFd> {
        let file = Listed::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&self.name)
            .ok()?;
        let facts = file.metadata().ok()?;
        let (device, inode) = self.key;
        let same = facts.is_file()
            && facts.ino() == inode
            && (libc::major(facts.dev()), libc::minor(facts.dev())) == device;
        same.then(|| file.into())
    }
}

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// Whether the program has written to none of these pages, if the kernel says so.
fn is_untouched(bytes: &Range<u64>) -> Option<bool> {
    // SAFETY: the call only asks.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
    let (first, end) = (bytes.start / page, bytes.end.div_ceil(page));
    let pagemap = Listed::open("/proc/self/pagemap").ok()?;
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
        let file = Listed::open(&path).unwrap();
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
        let maps = BufReader::new(Listed::open("/proc/self/maps").unwrap());
        let mapping = Mapping::of(maps, &bytes).unwrap();
        assert!(mapping.open().is_some());
        std::fs::remove_file(&path).unwrap();
        assert!(mapping.open().is_none());
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(memory, length) };
    }
}
