//! Files that the server shares: it opens them for its clients, and the clients' workers get the
//! descriptors. A worker's sandbox finds no file.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_files::{Access, Checked, Opened, Opener, Request};
use outboard_wire::files::{FileChallenge, FileReference};
use tokio::sync::Semaphore;

/// Openings that work or wait at once, of all sessions and of one: each has a thread meanwhile.
const MOST: usize = 64;
pub(crate) const MOST_OF_A_SESSION: usize = 16;
/// Files whose client has not shown yet that it can read them, of all sessions and of one: each has
/// a descriptor of this process.
const MOST_ASKED: usize = 128;
const MOST_ASKED_OF_A_SESSION: usize = 16;
/// A client may take so long to show it before others' files have the place.
const PATIENCE: Duration = Duration::from_secs(10);

/// Opens files of this server's machine.
pub(crate) struct Files {
    opener: Option<Arc<Opener>>,
    room: Semaphore,
    last: Cell<u64>,
    asked: RefCell<Asked>,
}

/// Files whose clients have not shown yet that they can read them, the oldest first.
type Asked = BTreeMap<u64, Waiting>;

struct Waiting {
    session: u64,
    since: Instant,
    opened: Opened,
}

impl Files {
    pub(crate) fn new(opener: Option<Arc<Opener>>) -> Files {
        let (room, last, asked) = (Semaphore::new(MOST), Cell::new(0), RefCell::default());
        Files { opener, room, last, asked }
    }

    /// Whether there are files that clients may use.
    pub(crate) fn are_shared(&self) -> bool {
        self.opener.is_some()
    }

    /// Opens a file for a session of that owner: its number, and what the client is to answer. The
    /// error is a sentence for the client. `of_session`: the session's room for openings.
    pub(crate) async fn open(
        &self,
        (session, of_session): (u64, &Semaphore),
        owner: String,
        reference: FileReference,
        access: Access,
    ) -> Result<(u64, FileChallenge), String> {
        let open = move |opener: &Opener| {
            let FileReference { source, path, identity } = &reference;
            let (owner, source, identity) = (owner.as_str(), source.as_str(), (*identity).into());
            opener.open(&Request { owner, source, path, identity, access })
        };
        let opened = self.beside(of_session, open).await?;
        // Who only writes has nothing to show.
        let challenge = opened.challenge().map_or_else(
            || FileChallenge { key: [0; 32], blocks: Vec::new() },
            |challenge| FileChallenge {
                key: *challenge.key(),
                blocks: challenge
                    .blocks()
                    .iter()
                    .map(|block| (block.offset, block.bytes))
                    .collect(),
            },
        );
        let mut asked = self.asked.borrow_mut();
        make_room(&mut asked, session)?;
        let number = self.last.get() + 1;
        self.last.set(number);
        asked.insert(number, Waiting { session, since: Instant::now(), opened });
        Ok((number, challenge))
    }

    /// The session's file of that number, if the client's answer is right.
    pub(crate) async fn prove(
        &self,
        (session, of_session): (u64, &Semaphore),
        number: u64,
        proof: [u8; 32],
    ) -> Result<Checked, String> {
        let found = {
            let mut asked = self.asked.borrow_mut();
            let is_its_own = asked.get(&number).is_some_and(|waiting| waiting.session == session);
            if is_its_own { asked.remove(&number) } else { None }
        };
        let found = found.ok_or("the server has closed the file meanwhile: open it again")?;
        self.beside(of_session, move |opener| opener.check(found.opened, Some(proof))).await
    }

    /// A session has ended: nobody will ask for its files.
    pub(crate) fn forget(&self, session: u64) {
        self.asked.borrow_mut().retain(|_, waiting| waiting.session != session);
    }

    /// Does something that waits for a file system.
    async fn beside<T: Send + 'static>(
        &self,
        of_session: &Semaphore,
        work: impl FnOnce(&Opener) -> Result<T, outboard_files::Refused> + Send + 'static,
    ) -> Result<T, String> {
        let opener = self.opener.clone().ok_or("the server shares no files")?;
        let closed = |_| "the server ends".to_owned();
        let _places = (
            of_session.acquire().await.map_err(closed)?,
            self.room.acquire().await.map_err(closed)?,
        );
        let done = tokio::task::spawn_blocking(move || work(&opener)).await;
        match done {
            Ok(outcome) => outcome.map_err(|refused| refused.to_string()),
            Err(_) => Err("the server could not open the file; its log says more".to_owned()),
        }
    }
}

/// Closes the session's oldest file if it has too many, or one whose client takes too long.
fn make_room(asked: &mut Asked, session: u64) -> Result<(), String> {
    let mut own = asked.iter().filter(|(_, waiting)| waiting.session == session);
    let oldest = own.next().map(|(number, _)| *number);
    if let Some(oldest) = oldest.filter(|_| own.count() + 1 >= MOST_ASKED_OF_A_SESSION) {
        asked.remove(&oldest);
    }
    if asked.len() >= MOST_ASKED {
        match asked.first_key_value() {
            Some((_, waiting)) if waiting.since.elapsed() >= PATIENCE => drop(asked.pop_first()),
            _ => return Err("too many files are being opened on the server".to_owned()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use outboard_files::{Block, Challenge, Reference, answer};
    use tempfile::TempDir;

    use super::*;

    /// A folder with a file that is shared, the file, how a client names it, and who opens it.
    fn shared() -> (TempDir, File, FileReference, Files) {
        let folder = tempfile::tempdir().unwrap();
        // Every user may read what lies there.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let place = folder.path().join("file");
        std::fs::write(&place, b"bytes").unwrap();
        let file = File::open(&place).unwrap();
        let named = Reference::of(file.as_fd()).unwrap();
        let path = String::from_utf8(named.path.clone()).unwrap();
        let source = format!("{}/{}", named.source, path.strip_suffix("/file").unwrap());
        let share = format!("{source}={}", folder.path().display()).parse().unwrap();
        let opener = Opener::new(vec![share], Duration::from_secs(60)).unwrap();
        let Reference { source, path, identity, .. } = named;
        let reference = FileReference { source, path, identity: identity.into() };
        (folder, file, reference, Files::new(Some(Arc::new(opener))))
    }

    #[tokio::test]
    async fn a_file_waits_for_its_own_session_and_not_without_end() {
        let (_folder, file, reference, files) = shared();
        let room = Semaphore::new(MOST_OF_A_SESSION);
        let open = |session| {
            files.open((session, &room), "alice".to_owned(), reference.clone(), Access::Read)
        };
        let shown = |challenge: FileChallenge| {
            let block = |(offset, bytes)| Block { offset, bytes };
            let blocks = challenge.blocks.into_iter().map(block).collect();
            answer(&file, &Challenge::from_parts(challenge.key, blocks).unwrap()).unwrap()
        };
        let (number, challenge) = open(1).await.unwrap();
        let proof = shown(challenge);
        assert!(files.prove((2, &room), number, proof).await.is_err(), "another session's");
        assert!(files.prove((1, &room), number, proof).await.is_ok());
        assert!(files.prove((1, &room), number, proof).await.is_err(), "it has been given out");
        // Beyond its number, a session's oldest file is closed.
        let (oldest, challenge) = open(1).await.unwrap();
        let proof = shown(challenge);
        for _ in 0..MOST_ASKED_OF_A_SESSION {
            open(1).await.unwrap();
        }
        assert_eq!(files.asked.borrow().len(), MOST_ASKED_OF_A_SESSION);
        assert!(files.prove((1, &room), oldest, proof).await.is_err());
        // Others' files keep their places, until their clients have had their time.
        for session in 2..=1 + (MOST_ASKED / MOST_ASKED_OF_A_SESSION) as u64 {
            for _ in 0..MOST_ASKED_OF_A_SESSION {
                let _ = open(session).await;
            }
        }
        assert_eq!(files.asked.borrow().len(), MOST_ASKED);
        assert!(open(100).await.unwrap_err().contains("too many files"));
        files.asked.borrow_mut().first_entry().unwrap().get_mut().since -= PATIENCE;
        open(100).await.unwrap();
        files.forget(100);
        assert_eq!(files.asked.borrow().len(), MOST_ASKED - 1);
        files.forget(1);
        assert!(files.asked.borrow().values().all(|waiting| waiting.session > 1));
    }
}
