//! The mappings of a process, as the system lists them (`/proc/PID/maps`, proc(5)).

use std::ffi::OsStr;
use std::io::{self, BufRead, Cursor};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::RangeMap;

/// A file, by the major and minor number of its device, and its own number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileNumbers {
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// Number of the inode.
    pub inode: u64,
}

/// A line of the list. What cannot be read behind the addresses is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// The process may read it.
    pub readable: bool,
    /// The process may write to it.
    pub writable: bool,
    /// What is written is seen by all that map the same.
    pub shared: bool,
    /// The file that is mapped.
    pub file: Option<FileNumbers>,
    /// Where in it the range begins.
    pub offset: u64,
    /// The file's path when it was mapped, or what else the system calls it.
    pub name: PathBuf,
}

impl Mapping {
    fn read(line: &[u8]) -> Option<Mapping> {
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let (start, end) = text(words.next()?)?.split_once('-')?;
        let range = hexadecimal(start)?..hexadecimal(end)?;
        let rest = Mapping::read_rest(words).unwrap_or_default();
        Some(Mapping { range, ..rest })
    }

    fn read_rest<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> Option<Mapping> {
        let access = words.next()?;
        let offset = hexadecimal(text(words.next()?)?)?;
        let (major, minor) = text(words.next()?)?.split_once(':')?;
        let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let inode = text(words.next()?)?.parse().ok()?;
        let file = (inode != 0).then_some(FileNumbers { device, inode });
        let name = words.next().unwrap_or_default().trim_ascii_start();
        Some(Mapping {
            range: Range::default(),
            readable: access.contains(&b'r'),
            writable: access.contains(&b'w'),
            shared: access.contains(&b's'),
            file,
            offset,
            name: OsStr::from_bytes(name).into(),
        })
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn hexadecimal(digits: &str) -> Option<u64> {
    u64::from_str_radix(digits, 16).ok()
}

/// The list of this process.
///
/// # Errors
/// If the system does not show all of it.
pub fn own_mappings() -> io::Result<impl Iterator<Item = Mapping>> {
    Ok(mappings(Cursor::new(std::fs::read("/proc/self/maps")?)))
}

/// The mappings that a list has, in order of their addresses.
pub fn mappings(list: impl BufRead) -> impl Iterator<Item = Mapping> {
    list.split(b'\n').map_while(Result::ok).filter_map(|line| Mapping::read(&line))
}

/// The parts of a range at which no mapping is.
pub fn gaps(mappings: &[Mapping], range: &Range<u64>) -> Vec<Range<u64>> {
    let mut mapped = RangeMap::new();
    for Mapping { range: Range { start, end }, .. } in mappings {
        mapped.insert(*start, end.saturating_sub(*start), ());
    }
    mapped.gaps_in(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_far_as_they_can_be() {
        let list = b"\
00400000-00500000 r-xp 00001000 fe:1a 18500    /a/program \xff with spaces\n\
nonsense\n\
1000-\n\
00500000-00600000 rw-s 00000000 00:00 0 \n\
00600000-00700000 rw-s 0 1 1\n\
00700000-00800000\n";
        let found: Vec<Mapping> = mappings(&list[..]).collect();
        let file = Mapping {
            range: 0x40_0000..0x50_0000,
            readable: true,
            writable: false,
            shared: false,
            file: Some(FileNumbers { device: (0xfe, 0x1a), inode: 18500 }),
            offset: 0x1000,
            name: OsStr::from_bytes(b"/a/program \xff with spaces").into(),
        };
        let none = Mapping {
            range: 0x50_0000..0x60_0000,
            readable: true,
            writable: true,
            shared: true,
            ..Mapping::default()
        };
        let only = |range| Mapping { range, ..Mapping::default() };
        assert_eq!(found, [file, none, only(0x60_0000..0x70_0000), only(0x70_0000..0x80_0000)]);
    }

    #[test]
    fn this_process_has_its_program() {
        let here = this_process_has_its_program as *const () as u64;
        let of_program = own_mappings().unwrap().find(|mapping| mapping.range.contains(&here));
        let of_program = of_program.unwrap();
        assert!(of_program.readable && !of_program.writable && !of_program.shared);
        assert_eq!(of_program.name, std::env::current_exe().unwrap());
    }

    #[test]
    fn gaps_lie_between_mappings() {
        let list = "00400000-00500000 r-xp 00000000 fe:00 18500    /a/program\n\
                    nonsense\n\
                    00500000-00600000 rw-p 00000000 00:00 0        [heap]\n\
                    00900000-00a00000 rw-p 00000000 00:00 0 \n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";
        let list: Vec<Mapping> = mappings(list.as_bytes()).collect();
        assert_eq!(list.len(), 4);
        assert_eq!(
            gaps(&list, &(0x10_0000..0xb0_0000)),
            [0x10_0000..0x40_0000, 0x60_0000..0x90_0000, 0xa0_0000..0xb0_0000]
        );
        assert_eq!(
            gaps(&list, &(0x45_0000..0x95_0000)),
            std::slice::from_ref(&(0x60_0000..0x90_0000))
        );
        assert_eq!(gaps(&list, &(0x91_0000..0x92_0000)), []);
        assert_eq!(gaps(&[], &(5..9)), std::slice::from_ref(&(5..9)));
    }
}
