//! What a file is, as both machines see it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use outboard_wire::files::FileIdentity;
use rustix::fs::{AtFlags, FileType, StatxFlags, makedev, statx};
use rustix::io::Errno;

/// What tells a file from others, and from itself after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its number in its file system.
    pub inode: u64,
    /// Its length.
    pub bytes: u64,
    /// When it was last written: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// In what two identities differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// They are two files.
    Inode,
    /// One is longer.
    Bytes,
    /// One was written later.
    Modified,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Difference::Inode => "another inode",
            Difference::Bytes => "another length",
            Difference::Modified => "another time of its last change",
        })
    }
}

impl Identity {
    /// That of an open file, as its file server has it now.
    ///
    /// # Errors
    /// Those of `statx`.
    pub fn of(file: impl AsFd) -> io::Result<Identity> {
        Ok(Status::of(file.as_fd())?.identity)
    }

    /// In what it differs from another one; none if it does not.
    pub fn difference(&self, other: &Identity) -> Option<Difference> {
        if self.inode != other.inode {
            Some(Difference::Inode)
        } else if self.bytes != other.bytes {
            Some(Difference::Bytes)
        } else if self.modified != other.modified {
            Some(Difference::Modified)
        } else {
            None
        }
    }
}

impl From<FileIdentity> for Identity {
    fn from(FileIdentity { inode, bytes, modified }: FileIdentity) -> Identity {
        Identity { inode, bytes, modified }
    }
}

impl From<Identity> for FileIdentity {
    fn from(Identity { inode, bytes, modified }: Identity) -> FileIdentity {
        FileIdentity { inode, bytes, modified }
    }
}

/// Whether an open file is no longer what it was, or does not say.
pub fn changed_since(file: impl AsFd, was: &Identity) -> bool {
    Identity::of(file).map_or(true, |is| is != *was)
}

/// What the kernel says of an open file.
pub(crate) struct Status {
    pub(crate) identity: Identity,
    /// The number of its file system on this machine.
    pub(crate) device: u64,
    pub(crate) kind: FileType,
    /// The bits of its mode.
    pub(crate) mode: u32,
}

impl Status {
    pub(crate) fn of(file: BorrowedFd<'_>) -> io::Result<Status> {
        // What a network file system remembers may be some seconds old.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        match statx(file, c"", flags, StatxFlags::BASIC_STATS) {
            Ok(found) => Ok(Status {
                identity: Identity {
                    inode: found.stx_ino,
                    bytes: found.stx_size,
                    modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
                },
                device: makedev(found.stx_dev_major, found.stx_dev_minor),
                kind: FileType::from_raw_mode(found.stx_mode.into()),
                mode: found.stx_mode.into(),
            }),
            Err(Errno::NOSYS) => Status::remembered(file),
            Err(error) => Err(error.into()),
        }
    }

    /// For kernels and containers without `statx`.
    fn remembered(file: BorrowedFd<'_>) -> io::Result<Status> {
        use std::os::unix::fs::MetadataExt;
        let found = std::fs::File::from(file.try_clone_to_owned()?).metadata()?;
        Ok(Status {
            identity: Identity {
                inode: found.ino(),
                bytes: found.size(),
                modified: (found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or_default()),
            },
            device: found.dev(),
            kind: FileType::from_raw_mode(found.mode()),
            mode: found.mode(),
        })
    }
}

/// A kind of file in a sentence.
pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "of an unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::tests::Folder;

    #[test]
    fn an_identity_changes_with_the_file() {
        let folder = Folder::new();
        let path = folder.write("a", b"12345");
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        let was = Identity::of(&file).unwrap();
        assert_eq!(was.bytes, 5);
        assert!(!changed_since(&file, &was));
        file.write_all(b"6").unwrap();
        assert!(changed_since(&file, &was));
        assert_eq!(Identity::of(&file).unwrap().difference(&was), Some(Difference::Bytes));
    }

    #[test]
    fn the_difference_is_the_weightiest() {
        let a = Identity { inode: 1, bytes: 2, modified: (3, 4) };
        assert_eq!(a.difference(&a), None);
        let later = Identity { modified: (3, 5), ..a };
        assert_eq!(a.difference(&later), Some(Difference::Modified));
        assert_eq!(a.difference(&Identity { bytes: 3, ..later }), Some(Difference::Bytes));
        assert_eq!(
            a.difference(&Identity { inode: 2, bytes: 3, ..later }),
            Some(Difference::Inode)
        );
    }

    #[test]
    fn both_questions_have_one_answer() {
        let folder = Folder::new();
        let file = std::fs::File::open(folder.write("a", b"12345")).unwrap();
        let (now, remembered) =
            (Status::of(file.as_fd()).unwrap(), Status::remembered(file.as_fd()).unwrap());
        assert_eq!(now.identity, remembered.identity);
        assert_eq!(now.mode, remembered.mode);
        assert_eq!(now.kind, FileType::RegularFile);
        assert_eq!(remembered.kind, FileType::RegularFile);
    }
}
