//! Files that the server shares: it opens them for its clients, and the clients' workers get the
//! descriptors. A worker's sandbox finds no file.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use outboard_files::{Access, Checked, Identity, Opened, Opener, Request};
use outboard_wire::files::{FileChallenge, FileReference};
use tokio::sync::Semaphore;

/// Openings that work or wait at once, of all sessions and of one: each has a thread meanwhile.
const MOST: usize = 64;
const MOST_OF_A_SESSION: usize = 16;
/// Files of a session whose client has not shown yet that it can read them. Beyond that, the one
/// that waits longest is closed.
const MOST_ASKED: usize = 64;

/// Opens files of this server's machine.
pub(crate) struct Files {
    opener: Option<Arc<Opener>>,
    room: Semaphore,
}

impl Files {
    pub(crate) fn new(opener: Option<Arc<Opener>>) -> Files {
        Files { opener, room: Semaphore::new(MOST) }
    }
}

/// The files that a session is opening.
pub(crate) struct Openings {
    room: Semaphore,
    last: Cell<u64>,
    asked: RefCell<BTreeMap<u64, Opened>>,
}

impl Default for Openings {
    fn default() -> Openings {
        let (last, asked) = (Cell::new(0), RefCell::default());
        Openings { room: Semaphore::new(MOST_OF_A_SESSION), last, asked }
    }
}

impl Files {
    /// Whether there are files that clients may use.
    pub(crate) fn are_shared(&self) -> bool {
        self.opener.is_some()
    }

    /// Opens a file for a client of that owner: its number, and what the client is to answer. The
    /// inner error is a sentence for the client.
    pub(crate) async fn open(
        &self,
        openings: &Openings,
        owner: String,
        reference: FileReference,
        access: Access,
    ) -> Result<(u64, FileChallenge), String> {
        let open = move |opener: &Opener| {
            let FileReference { source, path, identity } = &reference;
            let identity = Identity {
                inode: identity.inode,
                bytes: identity.bytes,
                modified: identity.modified,
            };
            let (owner, source) = (owner.as_str(), source.as_str());
            opener.open(&Request { owner, source, path, identity, access })
        };
        let opened = self.beside(openings, open).await?;
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
        let number = openings.last.get() + 1;
        openings.last.set(number);
        let mut asked = openings.asked.borrow_mut();
        if asked.len() >= MOST_ASKED {
            asked.pop_first();
        }
        asked.insert(number, opened);
        Ok((number, challenge))
    }

    /// The file of that number, if the client's answer is right.
    pub(crate) async fn prove(
        &self,
        openings: &Openings,
        number: u64,
        proof: [u8; 32],
    ) -> Result<Checked, String> {
        let opened = openings.asked.borrow_mut().remove(&number);
        let opened = opened.ok_or("the server has closed the file meanwhile: open it again")?;
        self.beside(openings, move |opener| opener.check(opened, Some(proof))).await
    }

    /// Does something that waits for a file system.
    async fn beside<T: Send + 'static>(
        &self,
        openings: &Openings,
        work: impl FnOnce(&Opener) -> Result<T, outboard_files::Refused> + Send + 'static,
    ) -> Result<T, String> {
        let opener = self.opener.clone().ok_or("the server shares no files")?;
        let closed = |_| "the server ends".to_owned();
        let _places = (
            openings.room.acquire().await.map_err(closed)?,
            self.room.acquire().await.map_err(closed)?,
        );
        let done = tokio::task::spawn_blocking(move || work(&opener)).await;
        match done {
            Ok(outcome) => outcome.map_err(|refused| refused.to_string()),
            Err(_) => Err("the server could not open the file; its log says more".to_owned()),
        }
    }
}
