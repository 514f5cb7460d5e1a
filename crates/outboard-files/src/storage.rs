//! Where the bytes of a file are.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

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
