//! Memory of the program that is a file's: which file it is, for another process to map the same
//! pages.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, major, minor, open, stat};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::pager::page_bytes;

/// A file of which some memory is.
#[derive(Debug)]
pub(crate) struct MappedFile {
    /// Open for reading and writing.
    pub(crate) file: OwnedFd,
    /// Where in it the page of the first byte is.
    pub(crate) offset: u64,
    /// Whether the bytes are all that is in it.
    pub(crate) is_whole: bool,
}

/// A mapping of a file whose writes are everybody's, or several that follow each other in memory
/// and in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    offset: u64,
    device: (u32, u32),
    inode: u64,
    /// The file's path when it was mapped.
    name: String,
    /// The name of the first mapping in `/proc/self/map_files`.
    link: String,
}

impl MappedFile {
    /// The file of these bytes, if they are all of one in memory that the program reads and writes,
    /// and can still be opened.
    pub(crate) fn at(bytes: Range<u64>) -> Option<MappedFile> {
        let mapping = find(BufReader::new(File::open("/proc/self/maps").ok()?), &bytes)?;
        let first = bytes.start - bytes.start % page_bytes();
        let offset = mapping.offset + (first - mapping.range.start);
        let file = mapping.names().find_map(|name| mapping.open(&name))?;
        let size = fstat(&file).ok()?.st_size as u64;
        let is_whole = offset == 0 && bytes.start == first && bytes.end - first >= size;
        // Pages count as those of the process that has touched them first, which is to be this one.
        // SAFETY: the pages are there, see above, and keep what they hold.
        match unsafe {
            madvise(first as *mut _, (bytes.end - first) as usize, Advice::LinuxPopulateWrite)
        } {
            // An older kernel.
            Ok(()) | Err(Errno::INVAL) => Some(MappedFile { file, offset, is_whole }),
            Err(_) => None,
        }
    }
}

impl Mapping {
    /// Names under which the file may be: those of the process's mappings, which takes a privilege,
    /// its own, and those of the process's descriptors.
    fn names(&self) -> impl Iterator<Item = PathBuf> {
        let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let known = [Path::new("/proc/self/map_files").join(&self.link), PathBuf::from(&self.name)];
        known
            .into_iter()
            .filter(|name| name.is_absolute())
            .chain(descriptors.map(|entry| entry.path()))
    }

    /// Opens the file at that path if it is still this file.
    fn open(&self, name: &Path) -> Option<OwnedFd> {
        let is_it = |found: rustix::fs::Stat| {
            (major(found.st_dev), minor(found.st_dev)) == self.device && found.st_ino == self.inode
        };
        // Opening something else could do something.
        stat(name).ok().filter(|found| is_it(*found))?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(name, flags, Mode::empty()).ok()?;
        fstat(&file).is_ok_and(is_it).then_some(file)
    }
}

/// The mapping of a file that has all these bytes, by what the system says of the process's
/// mappings: `/proc/self/maps`.
fn find(maps: impl BufRead, bytes: &Range<u64>) -> Option<Mapping> {
    let mut found: Option<Mapping> = None;
    for line in maps.split(b'\n') {
        let line = String::from_utf8_lossy(&line.ok()?).into_owned();
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let range = number(start)?..number(end)?;
        if range.end <= bytes.start {
            continue;
        }
        let next = shared(range, addresses, rest)?;
        let mapping = match found.take() {
            None if next.range.start <= bytes.start => next,
            Some(before) if before.goes_on_as(&next) => {
                Mapping { range: before.range.start..next.range.end, ..before }
            }
            _ => return None,
        };
        if mapping.range.end >= bytes.end {
            return Some(mapping);
        }
        found = Some(mapping);
    }
    None
}

/// What the rest of a line says, if that is a mapping of a file that can be read and written and is
/// shared.
fn shared(range: Range<u64>, link: &str, rest: &str) -> Option<Mapping> {
    let mut words = rest.splitn(5, ' ');
    words.next().filter(|access| access.starts_with("rw") && access.ends_with('s'))?;
    let offset = number(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = words.next()?.parse().ok().filter(|inode| *inode != 0)?;
    let name = words.next().unwrap_or_default().trim_start().to_owned();
    Some(Mapping { range, offset, device, inode, name, link: link.to_owned() })
}

fn number(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

impl Mapping {
    fn goes_on_as(&self, next: &Mapping) -> bool {
        let same = (self.device, self.inode) == (next.device, next.inode);
        let behind = self.range.end == next.range.start;
        same && behind && self.offset + (self.range.end - self.range.start) == next.offset
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::os::fd::AsFd;
    use std::ptr::null_mut;

    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

    use super::*;

    const MAPS: &str = "\
        00400000-00500000 r-xp 00000000 fe:00 1  /a/program\n\
        10000000-10002000 rw-s 00003000 00:1a 7  /dev/shm/one name\n\
        10002000-10003000 rw-s 00005000 00:1a 7  /dev/shm/one name\n\
        10003000-10004000 rw-s 00005000 00:1a 7  /dev/shm/one name\n\
        10004000-10005000 rw-s 00006000 00:1a 8  /memfd:x (deleted)\n\
        20000000-20001000 rw-p 00000000 00:1a 8  /memfd:x (deleted)\n\
        30000000-30001000 r--s 00000000 00:1a 8  /memfd:x (deleted)\n\
        7ffc181d4000-7ffc181f5000 rw-p 00000000 00:00 0  [stack]\n";

    fn found(bytes: Range<u64>) -> Option<Mapping> {
        find(MAPS.as_bytes(), &bytes)
    }

    #[test]
    fn mappings_that_follow_each_other_in_a_file_are_one() {
        let mapping = found(0x1000_0001..0x1000_2fff).unwrap();
        assert_eq!((mapping.range.clone(), mapping.offset), (0x1000_0000..0x1000_3000, 0x3000));
        assert_eq!((mapping.device, mapping.inode), ((0, 0x1a), 7));
        assert_eq!(
            (mapping.name.as_str(), mapping.link.as_str()),
            ("/dev/shm/one name", "10000000-10002000")
        );
        assert_eq!(found(0x1000_2000..0x1000_2001).unwrap().offset, 0x5000);
        for bytes in [
            0x1000_2000..0x1000_3001, // another place in the file
            0x1000_3000..0x1000_4001, // another file
            0x1000_4000..0x1000_5001, // nothing behind it
            0x0fff_ffff..0x1000_0001, // nothing before it
            0x2000_0000..0x2000_1000, // the process's own
            0x3000_0000..0x3000_1000, // not to be written
            0x7ffc_181d_4000..0x7ffc_181d_5000,
            0x7fff_0000_0000..0x7fff_0000_0001,
        ] {
            assert_eq!(found(bytes.clone()), None, "{bytes:x?}");
        }
        for maps in [
            "",
            "\n",
            "x\n",
            "1000-\n",
            "1000-2000 rw-s\n",
            "1000-2000 rw-s 0 1 1\n",
            "0-z rw-s 0 0:1 1 /a\n",
        ] {
            assert_eq!(find(maps.as_bytes(), &(0x1000..0x1001)), None, "{maps:?}");
        }
    }

    fn map(file: &impl AsFd, bytes: usize, flags: MapFlags) -> *mut c_void {
        // SAFETY: a new mapping, wherever there is room.
        unsafe { mmap(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0x1000) }
            .unwrap()
    }

    fn is_it(file: &OwnedFd, found: &MappedFile) -> bool {
        let (wanted, got) = (fstat(file).unwrap(), fstat(&found.file).unwrap());
        (wanted.st_dev, wanted.st_ino) == (got.st_dev, got.st_ino)
    }

    #[test]
    fn the_file_of_memory_is_found() {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 0x10000).unwrap();
        let memory = map(&file, 0x4000, MapFlags::SHARED);
        let at = memory as u64;
        let found = MappedFile::at(at + 0x1010..at + 0x3000).unwrap();
        assert!(is_it(&file, &found));
        assert_eq!((found.offset, found.is_whole), (0x2000, false));
        // A mapping of two parts, as `mprotect` leaves it, is still one once both can be written.
        let part = (at + 0x1000) as *mut c_void;
        // SAFETY: the memory of this test.
        unsafe { mprotect(part, 0x1000, rustix::mm::MprotectFlags::READ) }.unwrap();
        assert!(
            MappedFile::at(at..at + 0x4000).is_none()
                && MappedFile::at(at + 0x2000..at + 0x4000).is_some()
        );
        let private = map(&file, 0x1000, MapFlags::PRIVATE);
        assert!(MappedFile::at(private as u64..private as u64 + 1).is_none());
        // SAFETY: as above, new mappings, and those of this test.
        unsafe {
            let own = mmap_anonymous(
                null_mut(),
                0x1000,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap();
            assert!(MappedFile::at(own as u64..own as u64 + 1).is_none());
            for (memory, bytes) in [(memory, 0x4000), (private, 0x1000), (own, 0x1000)] {
                munmap(memory, bytes).unwrap();
            }
        }
        assert!(MappedFile::at(at..at + 0x1000).is_none());
        ftruncate(&file, 0x1800).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, wherever there is room, and not used once it is unmapped.
        let all =
            unsafe { mmap(null_mut(), 0x2000, access, MapFlags::SHARED, &file, 0) }.unwrap() as u64;
        let is_whole = |bytes: Range<u64>| MappedFile::at(bytes).unwrap().is_whole;
        assert!(is_whole(all..all + 0x1800) && is_whole(all..all + 0x2000));
        assert!(
            !is_whole(all..all + 0x17ff)
                && !is_whole(all + 1..all + 0x1800)
                && !is_whole(all + 0x1000..all + 0x1800)
        );
        // SAFETY: as above.
        unsafe { munmap(all as *mut c_void, 0x2000) }.unwrap();
    }

    #[test]
    fn a_file_is_found_by_its_descriptor_or_its_name_and_not_by_another_ones() {
        let folder = std::env::temp_dir();
        let mapping = |file: &OwnedFd, name: &Path| {
            let known = fstat(file).unwrap();
            Mapping {
                range: 0..1,
                offset: 0,
                device: (major(known.st_dev), minor(known.st_dev)),
                inode: known.st_ino,
                name: name.to_string_lossy().into_owned(),
                link: String::new(),
            }
        };
        let path = folder.join(format!("outboard-mapped-file-{}", std::process::id()));
        let create =
            || open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, Mode::RWXU).unwrap();
        let file = create();
        let known = mapping(&file, &path);
        assert!(known.open(&path).is_some());
        // Another file with this name is not it; its descriptor is.
        std::fs::remove_file(&path).unwrap();
        let other = create();
        assert!(known.open(&path).is_none());
        assert!(known.names().find_map(|name| known.open(&name)).is_some());
        std::fs::remove_file(&path).unwrap();
        drop((file, other));
        assert!(known.names().find_map(|name| known.open(&name)).is_none());
    }
}
