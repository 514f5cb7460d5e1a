//! How a client shows that it can read a file: it hashes blocks of it that the server chooses.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::rand::{GetRandomFlags, getrandom};

/// The most blocks of a challenge. A file of fewer is hashed whole.
pub const MOST_BLOCKS: usize = 16;
/// The longest block, in bytes. Blocks begin at multiples of it, so that files that were opened
/// with `O_DIRECT` can be read.
pub const LONGEST_BLOCK: u32 = 4096;

/// What is hashed first. What has another purpose begins otherwise.
const HEAD: &[u8] = b"outboard file 1";

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Where it begins, in bytes: a multiple of [`LONGEST_BLOCK`].
    pub offset: u64,
    /// Its length: 1 to [`LONGEST_BLOCK`].
    pub bytes: u32,
}

/// Which blocks to hash, and by which key. Each is for one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    key: [u8; 32],
    blocks: Vec<Block>,
}

/// Why a challenge is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadChallenge {
    /// There are too many blocks.
    #[error("a challenge asks for more than {MOST_BLOCKS} blocks")]
    TooMany,
    /// A block is empty, too long or begins elsewhere.
    #[error("a challenge asks for a block that is none")]
    Block,
}

impl Challenge {
    /// A new one for a file of so many bytes: its first block, its last one and others. The seed
    /// chooses the others: who fails with one seed meets the same blocks with it again.
    ///
    /// # Errors
    /// Those of `getrandom`.
    pub fn new(bytes: u64, seed: &[u8; 32]) -> io::Result<Challenge> {
        let length = u64::from(LONGEST_BLOCK);
        let count = bytes.div_ceil(length);
        let mut numbers: BTreeSet<u64> = BTreeSet::new();
        if count <= MOST_BLOCKS as u64 {
            numbers.extend(0..count);
        } else {
            numbers.extend([0, count - 1]);
            let mut chosen = blake3::Hasher::new_keyed(seed).finalize_xof();
            while numbers.len() < MOST_BLOCKS {
                let mut number = [0; 8];
                chosen.fill(&mut number);
                numbers.insert(u64::from_le_bytes(number) % count);
            }
        }
        let block = |number: u64| {
            let offset = number * length;
            let bytes = u32::try_from(bytes - offset).unwrap_or(u32::MAX).min(LONGEST_BLOCK);
            Block { offset, bytes }
        };
        Ok(Challenge { key: random()?, blocks: numbers.into_iter().map(block).collect() })
    }

    /// One that a server has sent.
    ///
    /// # Errors
    /// [`BadChallenge`] if a client should not answer it.
    pub fn from_parts(key: [u8; 32], blocks: Vec<Block>) -> Result<Challenge, BadChallenge> {
        if blocks.len() > MOST_BLOCKS {
            return Err(BadChallenge::TooMany);
        }
        let is_block = |block: &Block| {
            (1..=LONGEST_BLOCK).contains(&block.bytes)
                && block.offset.is_multiple_of(u64::from(LONGEST_BLOCK))
                && block.offset <= i64::MAX as u64
        };
        if !blocks.iter().all(is_block) {
            return Err(BadChallenge::Block);
        }
        Ok(Challenge { key, blocks })
    }

    /// The key of the hash.
    pub fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// The blocks, in the order in which they are hashed.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Whether this answers it, for an open file. How long that takes does not depend on the
    /// answer.
    pub(crate) fn is_answered(&self, file: BorrowedFd<'_>, answer: [u8; 32]) -> io::Result<bool> {
        Ok(hash(file, self)? == blake3::Hash::from_bytes(answer))
    }
}

/// The answer to a challenge: a hash of what an open file has in its blocks.
///
/// # Errors
/// Those of `pread`, and [`io::ErrorKind::UnexpectedEof`] if the file ends before a block does.
pub fn answer(file: impl AsFd, challenge: &Challenge) -> io::Result<[u8; 32]> {
    hash(file.as_fd(), challenge).map(|hash| *hash.as_bytes())
}

fn hash(file: BorrowedFd<'_>, challenge: &Challenge) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new_keyed(&challenge.key);
    hasher.update(HEAD);
    let mut page = Box::new(Page([0; LONGEST_BLOCK as usize]));
    for block in &challenge.blocks {
        hasher.update(&block.offset.to_le_bytes());
        hasher.update(&block.bytes.to_le_bytes());
        hasher.update(read(file, block, &mut page)?);
    }
    Ok(hasher.finalize())
}

/// Memory as `O_DIRECT` wants it.
#[repr(align(4096))]
struct Page([u8; LONGEST_BLOCK as usize]);

fn read<'a>(file: BorrowedFd<'_>, block: &Block, page: &'a mut Page) -> io::Result<&'a [u8]> {
    let bytes = block.bytes as usize;
    let mut done = 0;
    while done < bytes {
        // More than the block: `O_DIRECT` reads whole ones.
        let read = rustix::io::retry_on_intr(|| {
            rustix::io::pread(file, &mut page.0[done..], block.offset + done as u64)
        })?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done += read;
    }
    Ok(&page.0[..bytes])
}

/// Bytes that nobody can guess.
///
/// # Errors
/// Those of `getrandom`.
pub(crate) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut done = 0;
    while done < N {
        done +=
            rustix::io::retry_on_intr(|| getrandom(&mut bytes[done..], GetRandomFlags::empty()))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::OpenOptionsExt;

    use proptest::prelude::*;
    use rustix::fs::OFlags;

    use super::*;
    use crate::tests::Folder;

    const SEED: [u8; 32] = [3; 32];

    fn bytes(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at * 7 + at / 4096) as u8).collect()
    }

    #[test]
    fn who_can_read_a_file_can_show_it() {
        let folder = Folder::new();
        for length in [0, 1, 4095, 4096, 4097, 65536, 65537, 1_000_000] {
            let path = folder.write("a", &bytes(length));
            let (client, server) = (File::open(&path).unwrap(), File::open(&path).unwrap());
            let challenge = Challenge::new(length as u64, &SEED).unwrap();
            let sent = Challenge::from_parts(*challenge.key(), challenge.blocks().to_vec());
            let shown = answer(&client, &sent.unwrap()).unwrap();
            assert!(challenge.is_answered(server.as_fd(), shown).unwrap(), "{length}");
            // An answer is for one challenge.
            let again = Challenge::new(length as u64, &SEED).unwrap();
            assert!(!again.is_answered(server.as_fd(), shown).unwrap(), "{length}");
        }
    }

    #[test]
    fn other_bytes_show_nothing() {
        let folder = Folder::new();
        let (mut theirs, length) = (bytes(20_000), 20_000);
        let server = File::open(folder.write("a", &theirs)).unwrap();
        let challenge = Challenge::new(length, &SEED).unwrap();
        assert_eq!(challenge.blocks().len(), 5, "it is hashed whole");
        theirs[19_999] ^= 1;
        let client = File::open(folder.write("b", &theirs)).unwrap();
        let lie = answer(&client, &challenge).unwrap();
        assert!(!challenge.is_answered(server.as_fd(), lie).unwrap());
        assert!(!challenge.is_answered(server.as_fd(), [0; 32]).unwrap());
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let folder = Folder::new();
        let path = folder.write("a", &bytes(10_000));
        let file = File::options().read(true).write(true).open(path).unwrap();
        let challenge = Challenge::new(10_000, &SEED).unwrap();
        file.set_len(9_999).unwrap();
        assert_eq!(answer(&file, &challenge).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert!(challenge.is_answered(file.as_fd(), [0; 32]).is_err());
    }

    #[test]
    fn a_file_opened_for_direct_reading_can_be_hashed() {
        let folder = Folder::new();
        let path = folder.write("a", &bytes(300_001));
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct = match File::options().read(true).custom_flags(flags).open(&path) {
            Ok(direct) => direct,
            Err(error) => {
                outboard_test_support::skip!("the file system has no O_DIRECT: {error}")
            }
        };
        let challenge = Challenge::new(300_001, &SEED).unwrap();
        let shown = answer(&direct, &challenge).unwrap();
        let plain = File::open(&path).unwrap();
        assert!(challenge.is_answered(plain.as_fd(), shown).unwrap());
    }

    #[test]
    fn what_a_server_may_ask_is_bounded() {
        let of = |blocks: Vec<Block>| Challenge::from_parts([0; 32], blocks).map(|_| ());
        let block = |offset, bytes| Block { offset, bytes };
        assert_eq!(of(vec![block(0, 4096); 16]), Ok(()));
        assert_eq!(of(vec![block(0, 4096); 17]), Err(BadChallenge::TooMany));
        for wrong in [block(0, 0), block(0, 4097), block(1, 1), block(1 << 63, 1)] {
            assert_eq!(of(vec![wrong]), Err(BadChallenge::Block), "{wrong:?}");
        }
    }

    #[test]
    fn a_seed_chooses_the_blocks() {
        let chosen = |seed: [u8; 32]| Challenge::new(1 << 30, &seed).unwrap();
        let (one, again, other) = (chosen(SEED), chosen(SEED), chosen([4; 32]));
        assert_eq!(one.blocks(), again.blocks());
        assert_ne!(one.key(), again.key(), "an answer is for one challenge");
        assert_ne!(one.blocks(), other.blocks());
    }

    proptest! {
        #[test]
        fn blocks_lie_in_the_file(bytes in prop_oneof![any::<u64>(), 0_u64..200_000]) {
            let challenge = Challenge::new(bytes, &SEED).unwrap();
            let blocks = challenge.blocks();
            let sum: u64 = blocks.iter().map(|block| u64::from(block.bytes)).sum();
            if bytes <= 65536 {
                prop_assert_eq!(sum, bytes);
            } else {
                prop_assert_eq!(blocks.len(), MOST_BLOCKS);
                prop_assert_eq!(blocks[0].offset, 0);
                let last = blocks[MOST_BLOCKS - 1];
                prop_assert_eq!(last.offset + u64::from(last.bytes), bytes);
            }
            for pair in blocks.windows(2) {
                prop_assert!(pair[0].offset + u64::from(pair[0].bytes) <= pair[1].offset);
            }
            if bytes <= i64::MAX as u64 {
                let sent = Challenge::from_parts(*challenge.key(), blocks.to_vec());
                prop_assert_eq!(sent, Ok(challenge));
            }
        }
    }
}
