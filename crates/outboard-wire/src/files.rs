//! Files that client and server both have: how a client names one, and what it is asked to show
//! that it can read it.

use crate::{choice, record};

/// A file, as its client sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileReference {
    /// What is mounted there, such as `nfs1:/export`.
    pub source: String,
    /// The path below that.
    pub path: Vec<u8>,
    /// Which file it is, and in which state.
    pub identity: FileIdentity,
}

/// Which file of a file system, and in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileIdentity {
    /// The number of its inode.
    pub inode: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was written last: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
}

/// Parts of a file, whose keyed hash shows that somebody can read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChallenge {
    /// The key of the hash.
    pub key: [u8; 32],
    /// Offset and bytes of each part.
    pub blocks: Vec<(u64, u32)>,
}

/// What a server says to a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileOpening {
    /// It has no files in common with this client.
    NothingShared {},
    /// It does not open this one, for the reason that the sentence says.
    Refused(String),
    /// It has opened the file.
    Opened(FileChallenge),
}

record! {
    FileReference { source, path, identity }
    FileIdentity { inode, bytes, modified }
    FileChallenge { key, blocks }
}

choice! { FileOpening, "answer to a reference to a file" {
    0 = NothingShared {};
    1 = Refused(reason);
    2 = Opened(challenge);
} }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode_all;
    use crate::{Encode, Writer};

    fn travels<T: Encode + for<'a> crate::Decode<'a> + PartialEq + std::fmt::Debug>(value: &T) {
        let mut writer = Writer::new();
        writer.put(value);
        let bytes = writer.into_vec();
        assert_eq!(&decode_all::<T>(&bytes).unwrap(), value);
        for end in 0..bytes.len() {
            assert!(decode_all::<T>(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn references_and_answers_travel() {
        let identity = FileIdentity { inode: 7, bytes: 1 << 40, modified: (-1, 999_999_999) };
        let path = b"models/\xff.bin".to_vec();
        travels(&FileReference { source: "nfs1:/export".into(), path, identity });
        travels(&FileOpening::NothingShared {});
        travels(&FileOpening::Refused("no".into()));
        let blocks = vec![(0, 4096), (1 << 40, 1)];
        travels(&FileOpening::Opened(FileChallenge { key: [3; 32], blocks }));
    }
}
