//! Where the bytes of a file are.

use std::num::NonZeroU64;
use std::os::fd::AsFd;

use rustix::fs::{Advice, fadvise, fstatfs};

/// File systems whose bytes are on this machine, by what `statfs` calls them: everybody who reads a
/// file there sees at once what was written to it.
const ON_THIS_MACHINE: [u64; 12] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0x2fc1_2fc1, // zfs
    0xca45_1a4e, // bcachefs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x4d44,      // vfat
    0x2011_bab0, // exfat
    0x7366_746e, // ntfs3
];

/// Whether an open file lies in a file system of this machine alone. Of others, such as NFS, each
/// machine remembers for a while what it has read and written.
pub fn is_on_this_machine(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|found| ON_THIS_MACHINE.contains(&(found.f_type as u64)))
}

/// Has this machine forget what it remembers of these bytes of a file that lies elsewhere, so that
/// it asks for them when they are read. NFS does so by itself only for files that it has not open
/// for writing. What is to be written down stays.
pub fn forget(file: impl AsFd, offset: u64, bytes: u64) {
    // It forgets whole pages only.
    const MARGIN: u64 = 1 << 16;
    let file = file.as_fd();
    if is_on_this_machine(file) {
        return;
    }
    let first = offset / MARGIN * MARGIN;
    let end = offset.saturating_add(bytes).saturating_add(MARGIN - 1) / MARGIN * MARGIN;
    if let Some(bytes) = NonZeroU64::new(end.saturating_sub(first)) {
        // It is only advice.
        let _ = fadvise(file, first, Some(bytes), Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_none_of_a_disk() {
        let proc = std::fs::File::open("/proc/self/status").unwrap();
        assert!(!is_on_this_machine(&proc));
        let program = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(is_on_this_machine(&program), "{:#x}", fstatfs(&program).unwrap().f_type);
    }
}
