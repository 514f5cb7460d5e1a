//! How a server opens a file beneath a folder, whoever may change what lies there meanwhile.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::identity::{Status, kind_name};
use crate::opener::Access;
use crate::refused::Unopened;
use crate::storage::is_on_this_machine;

/// How often the kernel is asked again if it saw a rename on the way.
const TRIES: usize = 32;
/// Who runs such a file acts as its user or as its group.
const SET_ID: u32 = 0o6000;
/// Every user may read such a file.
const ALL_READ: u32 = 0o4;
/// Every user may reach what lies in such a folder.
const ALL_ENTER: u32 = 0o1;

/// Whose permission counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// That of the user of this thread, whom the administrator has named: the kernel judges.
    OfUser,
    /// That of every user, as the modes of the file and of the folders above it say.
    OfAll,
}

/// Opens a regular file, as the user of this thread. Its path has no `..`; no link in it is
/// followed, and no mount entered.
pub(crate) fn open(
    folder: BorrowedFd<'_>,
    path: &[u8],
    access: Access,
    permission: Permission,
) -> Result<(OwnedFd, Status), Unopened> {
    // This finds the file and does nothing to it: a FIFO does not block, a device does not move.
    let place = find(folder, path)?;
    let status = Status::of(place.as_fd())?;
    if status.kind != FileType::RegularFile {
        return Err(Unopened::Kind(kind_name(status.kind)));
    }
    if permission == Permission::OfAll {
        let may_read = status.mode & ALL_READ != 0 && may_all_reach(folder, path)?;
        if !may_read {
            return Err(Unopened::NotForAll);
        }
    }
    if access != Access::Read && status.mode & SET_ID != 0 {
        return Err(Unopened::SetId);
    }
    // By the descriptor: a path could lead to another file now.
    let path = format!("/proc/thread-self/fd/{}", place.as_raw_fd());
    let mut flags = access.flags() | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    if access != Access::Read && !is_on_this_machine(&place) {
        // Others see at once what is written, and NFS writes nothing else: it would round writes up
        // to pages, over what others have written there.
        flags |= OFlags::DSYNC;
    }
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Err(Unopened::NoProc),
        opened => opened?,
    };
    // What helps in opening would make `io_uring` give up where it should wait.
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    // Only now does a network file system have it as its server does.
    let status = Status::of(file.as_fd())?;
    Ok((file, status))
}

/// Whether every user may enter the folder and those on the path to the file.
fn may_all_reach(folder: BorrowedFd<'_>, path: &[u8]) -> Result<bool, Unopened> {
    let is_open =
        |folder: BorrowedFd<'_>| Status::of(folder).map(|status| status.mode & ALL_ENTER != 0);
    if !is_open(folder)? {
        return Ok(false);
    }
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    for end in ends {
        let above = find(folder, &path[..end])?;
        if !is_open(above.as_fd())? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn find(folder: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    // With `NOFOLLOW`, a link at the end would be found itself.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        outcome = openat2(folder, path, flags, Mode::empty(), within);
        if !matches!(outcome, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    outcome
}
