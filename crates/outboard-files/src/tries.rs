//! How often an owner has failed to show that it can read a file.
//!
//! An owner that fails too often waits, and meets the same blocks of the file at each try: with
//! other blocks each time, who knows a part of a file would meet that part only, some time.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::proof::random;
use crate::refused::Refused;

/// Wrong answers of an owner for a file, after which the owner waits.
pub(crate) const MOST_WRONG: usize = 3;
/// How long a wrong answer counts.
pub(crate) const MEMORY: Duration = Duration::from_secs(600);
/// Files of an owner with wrong answers, after which the owner waits.
pub(crate) const MOST_FILES: usize = 256;

/// What tells a file from all others of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileNumber {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// The wrong answers of all owners.
pub(crate) struct Tries {
    /// The key of the hash that makes seeds; it lasts as long as the process.
    secret: [u8; 32],
    owners: Mutex<HashMap<String, Files>>,
}

/// The wrong answers of an owner.
type Files = HashMap<FileNumber, Wrong>;

struct Wrong {
    answers: usize,
    last: Instant,
}

/// An owner has to wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Before it tries this file again.
    File { owner: String, wait: Duration },
    /// Before it tries a further file.
    Files { owner: String, wait: Duration },
}

impl Wait {
    /// As the refusal of a file of a share.
    pub(crate) fn of(self, share: &str) -> Refused {
        match self {
            Wait::File { owner, wait } => {
                Refused::Guessed { share: share.to_owned(), owner, wrong: MOST_WRONG, wait }
            }
            Wait::Files { owner, wait } => {
                Refused::GuessedManyFiles { owner, files: MOST_FILES, wait }
            }
        }
    }
}

impl Wrong {
    /// How long it counts yet.
    fn left(&self, now: Instant) -> Duration {
        (self.last + MEMORY).saturating_duration_since(now)
    }
}

impl Tries {
    /// Without a wrong answer.
    ///
    /// # Errors
    /// Those of `getrandom`.
    pub(crate) fn new() -> io::Result<Tries> {
        Ok(Tries { secret: random()?, owners: Mutex::default() })
    }

    /// What chooses the blocks of a file for an owner: the same for each of its tries.
    pub(crate) fn seed(&self, owner: &str, file: FileNumber) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(&file.device.to_le_bytes());
        hasher.update(&file.inode.to_le_bytes());
        hasher.update(owner.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// Whether an owner may try to show that it can read a file.
    pub(crate) fn admit(&self, owner: &str, file: FileNumber, now: Instant) -> Result<(), Wait> {
        self.owners.lock().get(owner).map_or(Ok(()), |files| judge(files, owner, file, now))
    }

    /// Notes an owner's answer. The owner may have to wait since it was asked: then its answer
    /// counts for nothing.
    pub(crate) fn note(
        &self,
        owner: &str,
        file: FileNumber,
        is_right: bool,
        now: Instant,
    ) -> Result<(), Wait> {
        let mut owners = self.owners.lock();
        if let Some(files) = owners.get_mut(owner) {
            judge(files, owner, file, now)?;
            if is_right {
                files.remove(&file);
            }
        }
        if !is_right {
            owners.retain(|_, files| {
                files.retain(|_, wrong| !wrong.left(now).is_zero());
                !files.is_empty()
            });
            let wrong = owners.entry(owner.to_owned()).or_default().entry(file);
            let wrong = wrong.or_insert(Wrong { answers: 0, last: now });
            (wrong.answers, wrong.last) = (wrong.answers + 1, now);
        }
        Ok(())
    }
}

fn judge(files: &Files, owner: &str, file: FileNumber, now: Instant) -> Result<(), Wait> {
    let owner = || owner.to_owned();
    let counting = || files.values().map(|wrong| wrong.left(now)).filter(|left| !left.is_zero());
    match files.get(&file).filter(|wrong| !wrong.left(now).is_zero()) {
        Some(wrong) if wrong.answers >= MOST_WRONG => {
            Err(Wait::File { owner: owner(), wait: wrong.left(now) })
        }
        Some(_) => Ok(()),
        None if files.len() >= MOST_FILES && counting().count() >= MOST_FILES => {
            let wait = counting().min().unwrap_or_default();
            Err(Wait::Files { owner: owner(), wait })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileNumber {
        FileNumber { device: 1, inode }
    }

    #[test]
    fn an_owner_waits_after_some_wrong_answers_for_that_file_only() {
        let (tries, now) = (Tries::new().unwrap(), Instant::now());
        for _ in 0..MOST_WRONG {
            assert_eq!(tries.admit("alice", file(1), now), Ok(()));
            assert_eq!(tries.note("alice", file(1), false, now), Ok(()));
        }
        let wait = Wait::File { owner: "alice".to_owned(), wait: MEMORY };
        assert_eq!(tries.admit("alice", file(1), now), Err(wait));
        assert!(tries.note("alice", file(1), true, now).is_err(), "it comes too late");
        assert!(tries.note("alice", file(1), false, now).is_err());
        for (owner, number) in [("alice", 2), ("bob", 1)] {
            assert_eq!(tries.admit(owner, file(number), now), Ok(()));
            assert_eq!(tries.note(owner, file(number), true, now), Ok(()));
        }
        let later = now + MEMORY;
        assert_eq!(tries.admit("alice", file(1), later), Ok(()));
        assert_eq!(tries.note("alice", file(1), false, later), Ok(()));
        assert_eq!(tries.admit("alice", file(1), later), Ok(()), "the old ones count no more");
    }

    #[test]
    fn a_right_answer_makes_up_for_wrong_ones() {
        let (tries, now) = (Tries::new().unwrap(), Instant::now());
        for is_right in [false, false, true, false, false] {
            assert_eq!(tries.note("alice", file(1), is_right, now), Ok(()));
        }
        assert_eq!(tries.admit("alice", file(1), now), Ok(()));
    }

    #[test]
    fn what_is_remembered_of_an_owner_is_bounded() {
        let (tries, now) = (Tries::new().unwrap(), Instant::now());
        for number in 0..MOST_FILES as u64 {
            assert_eq!(tries.note("alice", file(number), false, now), Ok(()));
        }
        let refused = tries.note("alice", file(u64::MAX), true, now);
        assert!(matches!(refused, Err(Wait::Files { .. })), "{refused:?}");
        assert_eq!(tries.admit("alice", file(1), now), Ok(()), "it has tries left");
        assert_eq!(tries.admit("bob", file(u64::MAX), now), Ok(()));
        let later = now + MEMORY;
        assert_eq!(tries.note("alice", file(u64::MAX), false, later), Ok(()));
        assert_eq!(tries.owners.lock()["alice"].len(), 1, "the old ones are forgotten");
    }

    #[test]
    fn each_owner_and_each_file_has_blocks_of_its_own() {
        let tries = Tries::new().unwrap();
        let seed = tries.seed("alice", file(1));
        assert_eq!(seed, tries.seed("alice", file(1)));
        assert_ne!(seed, tries.seed("bob", file(1)));
        assert_ne!(seed, tries.seed("alice", file(2)));
        assert_ne!(seed, tries.seed("alice", FileNumber { device: 2, inode: 1 }));
        assert_ne!(seed, Tries::new().unwrap().seed("alice", file(1)), "nobody can guess them");
    }
}
