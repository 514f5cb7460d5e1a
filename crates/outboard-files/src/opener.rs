//! A server's side: opens files of its shares for clients, once they have shown that they can read
//! them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::identity::{Identity, Status, changed_since};
use crate::name::Name;
use crate::opening::{self, Permission};
use crate::proof::Challenge;
use crate::refused::Refused;
use crate::share::{BadShare, Share};
use crate::shares::{Open, Shares};
use crate::tries::{FileNumber, Tries};
use crate::user::User;

/// For what a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To read it.
    Read,
    /// To write to it, and not to read it.
    Write,
    /// For both.
    ReadWrite,
}

impl Access {
    pub(crate) fn flags(self) -> OFlags {
        match self {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::ReadWrite => OFlags::RDWR,
        }
    }
}

/// What a client asks for. Only the owner is known to be true.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Whose client it is.
    pub owner: &'a str,
    /// What the client's mount shows: at most [`LONGEST_TEXT`](crate::LONGEST_TEXT) bytes.
    pub source: &'a str,
    /// Where the file lies there: at most [`LONGEST_TEXT`](crate::LONGEST_TEXT) bytes.
    pub path: &'a [u8],
    /// What the client sees of the file.
    pub identity: Identity,
    /// For what it is to be opened.
    pub access: Access,
}

/// A file that a server has opened, of which its client has shown nothing yet.
pub struct Opened {
    file: OwnedFd,
    identity: Identity,
    access: Access,
    challenge: Option<Challenge>,
    share: Arc<Open>,
    owner: String,
    number: FileNumber,
}

impl Opened {
    /// What the client is to answer; nothing if the file can only be written to, since the kernel
    /// has said that its user may do so.
    pub fn challenge(&self) -> Option<&Challenge> {
        self.challenge.as_ref()
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.share.share.source();
        f.debug_struct("Opened").field("share", &share).finish_non_exhaustive()
    }
}

/// A file that its client may use.
#[derive(Debug)]
pub struct Checked {
    /// The open file, a regular one.
    pub file: OwnedFd,
    /// What it was when its client had shown that it can read it.
    pub identity: Identity,
    /// For what it is open.
    pub access: Access,
}

/// Opens files for the clients of a server.
///
/// Its calls wait for file systems, each step for as long as the limit: two of them for an opening,
/// the wait for a turn included. Of each share two calls work at a time. Whoever calls sees to it
/// that no client opens too much at once, and that unused [`Opened`] values are dropped.
pub struct Opener {
    shares: Shares,
    limit: Duration,
    tries: Arc<Tries>,
}

impl Opener {
    /// Opens the folders of the shares.
    ///
    /// # Errors
    /// [`BadShare`] if one cannot be opened within the limit, or a source is there twice.
    pub fn new(shares: Vec<Share>, limit: Duration) -> Result<Opener, BadShare> {
        let tries = Tries::new().map_err(|error| BadShare::System(error.to_string()))?;
        Ok(Opener { shares: Shares::open(shares, limit)?, limit, tries: Arc::new(tries) })
    }

    /// Opens a file, if it is there as the client has described it.
    ///
    /// # Errors
    /// [`Refused`] says why not.
    pub fn open(&self, request: &Request<'_>) -> Result<Opened, Refused> {
        let Request { owner, source, path, identity, access } = *request;
        let name = Name::new(source, path)?;
        let (open, path) = self
            .shares
            .find(&name)
            .ok_or_else(|| Refused::NoShare { source_name: source.to_owned() })?;
        let user = permit(&open.share, owner, access)?;
        let (share, path, owner) = (Arc::clone(open), path.to_vec(), owner.to_owned());
        let tries = Arc::clone(&self.tries);
        open.turns.run(self.limit, move || {
            let permission = match user {
                Some(user) => {
                    become_user(&user)?;
                    Permission::OfUser
                }
                None => Permission::OfAll,
            };
            let found = opening::open(share.folder(), &path, access, permission)
                .map_err(|why| Refused::Unopened { share: share.source(), why })?;
            if let Some(difference) = identity.difference(&found.1.identity) {
                return Err(Refused::Differs { share: share.source(), difference });
            }
            ask(share, owner, access, found, &tries)
        })
    }

    /// Gives the file out, if the client has answered the challenge and the file is as it was. A
    /// wrong answer is the last one: the file must be opened again. After some wrong answers of an
    /// owner, the file is not opened for it for a while.
    ///
    /// # Errors
    /// [`Refused`] says why not.
    pub fn check(&self, opened: Opened, answer: Option<[u8; 32]>) -> Result<Checked, Refused> {
        let (open, tries) = (Arc::clone(&opened.share), Arc::clone(&self.tries));
        open.turns.run(self.limit, move || check(opened, answer, &tries))
    }
}

/// The user as whom a file is opened, if its owner may open it for that.
fn permit(share: &Share, owner: &str, access: Access) -> Result<Option<User>, Refused> {
    let source = || share.source().to_owned();
    if !share.is_for(owner) {
        return Err(Refused::NotYours { share: source(), owner: owner.to_owned() });
    }
    let user = share.user(owner);
    if access != Access::Read {
        if !share.is_writable() {
            return Err(Refused::ReadOnly { share: source() });
        }
        if user.is_none() {
            return Err(Refused::NoUser { share: source(), owner: owner.to_owned() });
        }
    }
    Ok(user.cloned())
}

/// For this thread, which does nothing else.
fn become_user(user: &User) -> Result<(), Refused> {
    user.become_for_good().map_err(|error| Refused::OtherUser {
        uid: user.uid(),
        reason: io::Error::from(error).to_string(),
    })
}

/// Chooses what the client is to answer.
fn ask(
    share: Arc<Open>,
    owner: String,
    access: Access,
    (file, Status { identity, device, .. }): (OwnedFd, Status),
    tries: &Tries,
) -> Result<Opened, Refused> {
    let number = FileNumber { device, inode: identity.inode };
    let challenge = match access {
        Access::Write => None,
        Access::Read | Access::ReadWrite => {
            tries.admit(&owner, number, Instant::now()).map_err(|no| no.of(&share.source()))?;
            let new = Challenge::new(identity.bytes, &tries.seed(&owner, number));
            Some(new.map_err(|error| Refused::System(error.to_string()))?)
        }
    };
    Ok(Opened { file, identity, access, challenge, share, owner, number })
}

fn check(opened: Opened, answer: Option<[u8; 32]>, tries: &Tries) -> Result<Checked, Refused> {
    let Opened { file, identity, access, challenge, share, owner, number } = opened;
    let is_shown = match (&challenge, answer) {
        (None, _) => Ok(true),
        (Some(_), None) => Ok(false),
        (Some(challenge), Some(answer)) => challenge.is_answered(file.as_fd(), answer),
    };
    // A file that has changed explains a wrong answer, and an end where there was none.
    if changed_since(&file, &identity) {
        return Err(Refused::Changed { share: share.source() });
    }
    if challenge.is_some()
        && let Ok(is_shown) = is_shown
    {
        // Answers to several challenges may be judged at once: those behind the last wrong one that
        // is allowed count no more, even if they are right.
        tries
            .note(&owner, number, is_shown, Instant::now())
            .map_err(|no| no.of(&share.source()))?;
    }
    match is_shown {
        Ok(true) => Ok(Checked { file, identity, access }),
        Ok(false) => Err(Refused::NotShown { share: share.source() }),
        Err(error) => Err(Refused::Unopened { share: share.source(), why: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::proof::answer;
    use crate::tests::Folder;

    /// Nothing here hangs as a file server that is away, so the work of two openings does.
    #[test]
    fn a_share_that_hangs_takes_no_other_one_down() {
        let folder = Folder::new();
        let file = File::open(folder.write("a", b"12345")).unwrap();
        let identity = Identity::of(&file).unwrap();
        let share =
            |source: &str| format!("{source}={}", folder.0.path().display()).parse().unwrap();
        let opener = Opener::new(vec![share("nfs1:/a"), share("nfs2:/b")], LONG).unwrap();
        let request =
            |source| Request { owner: "alice", source, path: b"a", identity, access: Access::Read };
        let early = opener.open(&request("nfs1:/a")).unwrap();
        let name = Name::new("nfs1:/a", b"a").unwrap();
        let hanging = Arc::clone(opener.shares.find(&name).unwrap().0);
        let silent = Refused::Silent { share: "nfs1:/a".into() };
        let mut away = Vec::new();
        for _ in 0..2 {
            let (back, wait) = mpsc::channel::<()>();
            away.push(back);
            let file = file.try_clone().unwrap();
            let hang = move || {
                let _ = wait.recv();
                Ok(file)
            };
            let outcome = hanging.turns.run(Duration::from_millis(50), hang);
            assert_eq!(outcome.map(|_| ()), Err(silent.clone()));
        }
        let shown = |opened: &Opened| answer(&file, opened.challenge().unwrap()).unwrap();
        for _ in 0..100 {
            assert_eq!(opener.open(&request("nfs1:/a")).map(|_| ()), Err(silent.clone()));
            let opened = opener.open(&request("nfs2:/b")).unwrap();
            let answer = shown(&opened);
            assert!(opener.check(opened, Some(answer)).is_ok());
        }
        let answer = shown(&early);
        assert_eq!(opener.check(early, Some(answer)).map(|_| ()), Err(silent));
        // What comes too late is dropped, and the share is as before.
        drop(away);
        while opener.open(&request("nfs1:/a")).is_err() {
            thread::yield_now();
        }
    }

    const LONG: Duration = Duration::from_secs(60);
}
