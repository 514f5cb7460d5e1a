//! Memory of the program that is a file's: which file it is, for another process to map the same
//! pages.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use outboard_ranges::{FileNumbers, Mapping, own_mappings};
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
#[derive(Debug, PartialEq, Eq)]
struct Shared {
    first: Mapping,
    end: u64,
}

impl MappedFile {
    /// The file of these bytes, if they are all of one in memory that the program reads and writes,
    /// and can still be opened.
    pub(crate) fn at(bytes: Range<u64>) -> Option<MappedFile> {
        let shared = find(own_mappings().ok()?, &bytes)?;
        let first = bytes.start - bytes.start % page_bytes();
        let offset = shared.first.offset + (first - shared.first.range.start);
        let file = shared.names().find_map(|name| shared.open(&name))?;
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

impl Shared {
    /// Names under which the file may be: those of the process's mappings, which takes a privilege,
    /// its own, and those of the process's descriptors.
    fn names(&self) -> impl Iterator<Item = PathBuf> {
        let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let Range { start, end } = self.first.range;
        let of_mapping = format!("/proc/self/map_files/{start:x}-{end:x}");
        [PathBuf::from(of_mapping), self.first.name.clone()]
            .into_iter()
            .filter(|name| name.is_absolute())
            .chain(descriptors.map(|entry| entry.path()))
    }

    /// Opens the file at that path if it is still this file.
    fn open(&self, name: &Path) -> Option<OwnedFd> {
        let is_it = |found: rustix::fs::Stat| {
            let device = (major(found.st_dev), minor(found.st_dev));
            self.first.file == Some(FileNumbers { device, inode: found.st_ino })
        };
        // Opening something else could do something.
        stat(name).ok().filter(|found| is_it(*found))?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(name, flags, Mode::empty()).ok()?;
        fstat(&file).is_ok_and(is_it).then_some(file)
    }

    fn goes_on_as(&self, next: &Mapping) -> bool {
        let Mapping { range, offset, file, .. } = &self.first;
        *file == next.file
            && self.end == next.range.start
            && offset + (self.end - range.start) == next.offset
    }
}

/// The mapping of a file that has all these bytes, among these in order of their addresses.
fn find(mappings: impl Iterator<Item = Mapping>, bytes: &Range<u64>) -> Option<Shared> {
    let mut found: Option<Shared> = None;
    for next in mappings.skip_while(|mapping| mapping.range.end <= bytes.start) {
        let is_shared = next.readable && next.writable && next.shared && next.file.is_some();
        let end = next.range.end;
        let shared = match found.take() {
            _ if !is_shared => return None,
            None if next.range.start <= bytes.start => Shared { first: next, end },
            Some(before) if before.goes_on_as(&next) => Shared { end, ..before },
            _ => return None,
        };
        if end >= bytes.end {
            return Some(shared);
        }
        found = Some(shared);
    }
    None
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::os::fd::AsFd;
    use std::ptr::null_mut;

    use outboard_ranges::mappings;
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

    fn found(bytes: Range<u64>) -> Option<Shared> {
        find(mappings(MAPS.as_bytes()), &bytes)
    }

    #[test]
    fn mappings_that_follow_each_other_in_a_file_are_one() {
        let Shared { first, end } = found(0x1000_0001..0x1000_2fff).unwrap();
        assert_eq!(
            (first.range, end, first.offset),
            (0x1000_0000..0x1000_2000, 0x1000_3000, 0x3000)
        );
        assert_eq!(first.file, Some(FileNumbers { device: (0, 0x1a), inode: 7 }));
        assert_eq!(first.name, Path::new("/dev/shm/one name"));
        assert_eq!(found(0x1000_2000..0x1000_2001).unwrap().first.offset, 0x5000);
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
            assert_eq!(find(mappings(maps.as_bytes()), &(0x1000..0x1001)), None, "{maps:?}");
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
        let folder = tempfile::tempdir().unwrap();
        let mapping = |file: &OwnedFd, name: &Path| {
            let known = fstat(file).unwrap();
            let device = (major(known.st_dev), minor(known.st_dev));
            let file = Some(FileNumbers { device, inode: known.st_ino });
            let first = Mapping { range: 0..1, file, name: name.into(), ..Mapping::default() };
            Shared { first, end: 1 }
        };
        let path = folder.path().join("file");
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
