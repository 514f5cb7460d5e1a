//! Why a server does not open a file for a client.

use std::io;
use std::time::Duration;

use rustix::io::Errno;

use crate::identity::Difference;
use crate::name::BadName;

/// Why a server does not open a file for a client, in a sentence that the client may see.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// What the client sends as a name is none.
    #[error("the server opens no file of this name: {0}")]
    Name(#[from] BadName),
    /// The administrator has not named such a share.
    #[error("the server shares no files of {source_name:?}; its administrator can name them")]
    NoShare {
        /// What the client has named.
        source_name: String,
    },
    /// The share is for others.
    #[error("the server shares files of {share} with others than {owner}")]
    NotYours {
        /// The share's source.
        share: String,
        /// Who asks.
        owner: String,
    },
    /// The share is for reading.
    #[error("the server shares files of {share} for reading, not for writing")]
    ReadOnly {
        /// The share's source.
        share: String,
    },
    /// It is not known whose permission to write counts.
    #[error(
        "the server writes no files of {share} for {owner}: its administrator has named no user \
         whose permission counts"
    )]
    NoUser {
        /// The share's source.
        share: String,
        /// Who asks.
        owner: String,
    },
    /// The server's process may not do that.
    #[error(
        "the server cannot open files as the user {uid}, which its administrator has named: \
         {reason}; it may do so as root"
    )]
    OtherUser {
        /// The user's number.
        uid: u32,
        /// What the kernel says.
        reason: String,
    },
    /// The kernel does not open it, or it is nothing to open.
    #[error("the server cannot open the file of {share}: {why}")]
    Unopened {
        /// The share's source.
        share: String,
        /// What is in the way.
        why: Unopened,
    },
    /// Both machines have a file of this name, and they are two files, or one after a change.
    #[error(
        "the file of {share} that the server finds is not what the client has opened: it has \
         {difference}"
    )]
    Differs {
        /// The share's source.
        share: String,
        /// In what.
        difference: Difference,
    },
    /// The client's hash is wrong.
    #[error("the client has not shown that it can read the file of {share}")]
    NotShown {
        /// The share's source.
        share: String,
    },
    /// The client's hashes were wrong too often.
    #[error(
        "{owner} has not shown that it can read the file of {share}, {wrong} times; the server \
         takes no further proof for {} s", wait.as_secs()
    )]
    Guessed {
        /// The share's source.
        share: String,
        /// Who asks.
        owner: String,
        /// How many hashes were wrong.
        wrong: usize,
        /// How long the owner has to wait.
        wait: Duration,
    },
    /// The client's hashes were wrong for too many files.
    #[error(
        "{owner} has not shown that it can read {files} files; the server takes no proof for \
         further ones for {} s", wait.as_secs()
    )]
    GuessedManyFiles {
        /// Who asks.
        owner: String,
        /// Of how many files hashes were wrong.
        files: usize,
        /// How long the owner has to wait.
        wait: Duration,
    },
    /// It was written to meanwhile.
    #[error("the file of {share} was changed while the server opened it")]
    Changed {
        /// The share's source.
        share: String,
    },
    /// The file system hangs.
    #[error("the file system of {share} does not answer on the server")]
    Silent {
        /// The share's source.
        share: String,
    },
    /// Too many files are being opened.
    #[error("too many files of {share} are being opened on the server; try again")]
    Busy {
        /// The share's source.
        share: String,
    },
    /// The server's machine has run out of something.
    #[error("the server cannot open a file now: {0}")]
    System(String),
}

/// Why a file cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// There is none.
    #[error("there is no such file")]
    Missing,
    /// The kernel forbids it.
    #[error("the user as whom the server opens it has no permission")]
    Denied,
    /// No user is named, and some users may not read it.
    #[error(
        "not every user of its machine may read it, and its administrator has named no user whose \
         permission counts"
    )]
    NotForAll,
    /// It is behind a link.
    #[error("a part of its path is a symbolic link, which the server does not follow")]
    Link,
    /// It is behind a mount.
    #[error("it lies on another file system, mounted below; that needs a share of its own")]
    OtherFileSystem,
    /// It is nothing to read.
    #[error("it is no regular file but {0}")]
    Kind(&'static str),
    /// Whoever writes to it could act as somebody else.
    #[error("it runs as its user or group, and the server writes to no such file")]
    SetId,
    /// The kernel is too old.
    #[error("the server's kernel has no openat2, which Linux has since 5.6")]
    OldKernel,
    /// `/proc` is missing.
    #[error("the server's machine has no /proc")]
    NoProc,
    /// Something else.
    #[error("{0}")]
    Other(String),
}

impl From<Errno> for Unopened {
    fn from(error: Errno) -> Unopened {
        match error {
            Errno::NOENT | Errno::NOTDIR => Unopened::Missing,
            Errno::ACCESS | Errno::PERM => Unopened::Denied,
            Errno::LOOP => Unopened::Link,
            Errno::XDEV => Unopened::OtherFileSystem,
            Errno::NOSYS => Unopened::OldKernel,
            other => Unopened::Other(io::Error::from(other).to_string()),
        }
    }
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Unopened {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Unopened::Other(error.to_string()),
        }
    }
}
