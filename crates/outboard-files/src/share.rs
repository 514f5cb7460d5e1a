//! What the administrator of a server says of shared files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::name::{BadName, checked_source};
use crate::user::{BadUser, User};

/// Every owner that has no entry of its own.
const EVERYBODY: &str = "*";
/// The most shares of a server.
pub(crate) const MOST_SHARES: usize = 64;

/// Files that a server opens for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    source: String,
    terms: Terms,
}

/// Where the files of a share are, and whose they are. As a table of TOML:
///
/// ```toml
/// [files."nfs1:/export"]
/// folder = "/mnt/export"
/// write = true
/// owners = ["alice", "bob"]
/// users = { alice = "1000:100", bob = "1001:100,44" }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The folder of this machine in which they lie.
    pub folder: PathBuf,
    /// Whether they may be written to.
    #[serde(default)]
    pub write: bool,
    /// Who may use them; all owners without it.
    #[serde(default)]
    pub owners: Option<BTreeSet<String>>,
    /// The users of this machine whose permission counts for an owner; `*` for each other owner.
    /// For one without a user, the server opens files for reading that every user of this machine
    /// may read. If one is the server's own user, the server's groups count, not those named here.
    #[serde(default)]
    pub users: BTreeMap<String, User>,
}

/// Why files cannot be shared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadShare {
    /// The option is something else.
    #[error(
        "`{0}` shares no files: write SOURCE=FOLDER, such as nfs1:/export=/mnt/export, with \
         :as=UID:GID behind it for the user whose permission counts, and :rw before that for \
         files to write"
    )]
    Form(String),
    /// The source is none.
    #[error("`{source_name}` is no source of files: {reason}")]
    Source {
        /// What is written.
        source_name: String,
        /// Why it is none.
        reason: BadName,
    },
    /// A user is none.
    #[error(transparent)]
    User(#[from] BadUser),
    /// The folder is relative.
    #[error("the folder of {share} is to be a whole path, and is {}", folder.display())]
    Relative {
        /// The share's source.
        share: String,
        /// Its folder.
        folder: PathBuf,
    },
    /// Nobody could use it.
    #[error("nobody may use files of {share}: name owners, or leave `owners` out for all")]
    Nobody {
        /// The share's source.
        share: String,
    },
    /// There is a user for somebody who may not use it.
    #[error("{share} has a user for {owner}, who is not among its owners")]
    Stranger {
        /// The share's source.
        share: String,
        /// Who is not.
        owner: String,
    },
    /// It is not known whose permission to write counts.
    #[error(
        "files of {share} are to be written, and it has no users: name the user whose permission \
         counts for each owner, or for `*`"
    )]
    WriteAsNobody {
        /// The share's source.
        share: String,
    },
    /// The source is there twice.
    #[error("{0} is shared twice")]
    Twice(String),
    /// There are too many.
    #[error("more than {MOST_SHARES} sources of files are shared")]
    TooMany,
    /// The machine has run out of something.
    #[error("files cannot be shared now: {0}")]
    System(String),
    /// The folder cannot be opened.
    #[error("{}, the folder of {share}, cannot be opened: {reason}", folder.display())]
    Folder {
        /// The share's source.
        share: String,
        /// The folder.
        folder: PathBuf,
        /// What is in the way.
        reason: String,
    },
}

impl Share {
    /// Shares the files of a source, as clients see it: `nfs1:/export`, or a folder in it.
    ///
    /// # Errors
    /// [`BadShare`] says what does not fit.
    pub fn new(source: &str, terms: Terms) -> Result<Share, BadShare> {
        let wrong = |reason| BadShare::Source { source_name: source.to_owned(), reason };
        let share = checked_source(source).map_err(wrong)?.to_owned();
        if !terms.folder.is_absolute() {
            return Err(BadShare::Relative { share, folder: terms.folder });
        }
        if let Some(owners) = &terms.owners {
            if owners.is_empty() {
                return Err(BadShare::Nobody { share });
            }
            let is_stranger =
                |owner: &&String| *owner != EVERYBODY && !owners.contains(owner.as_str());
            if let Some(owner) = terms.users.keys().find(is_stranger) {
                return Err(BadShare::Stranger { share, owner: owner.clone() });
            }
        }
        if terms.write && terms.users.is_empty() {
            return Err(BadShare::WriteAsNobody { share });
        }
        Ok(Share { source: share, terms })
    }

    /// As clients see it, without a `/` at its end.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The folder of this machine in which the files lie.
    pub fn folder(&self) -> &Path {
        &self.terms.folder
    }

    /// Whether they may be written to.
    pub fn is_writable(&self) -> bool {
        self.terms.write
    }

    /// Whether an owner may use them.
    pub fn is_for(&self, owner: &str) -> bool {
        self.terms.owners.as_ref().is_none_or(|owners| owners.contains(owner))
    }

    /// The user whose permission counts for an owner.
    pub fn user(&self, owner: &str) -> Option<&User> {
        self.terms.users.get(owner).or_else(|| self.terms.users.get(EVERYBODY))
    }
}

impl FromStr for Share {
    type Err = BadShare;

    /// `SOURCE=FOLDER`, with `:rw` behind it for files to write, and `:as=UID:GID` for the user
    /// whose permission counts, whoever the owner is.
    fn from_str(text: &str) -> Result<Share, BadShare> {
        let wrong = || BadShare::Form(text.to_owned());
        let (shared, user) = match text.rsplit_once(":as=") {
            Some((shared, user)) => (shared, Some(user.parse()?)),
            None => (text, None),
        };
        let (shared, write) = match shared.strip_suffix(":rw") {
            Some(shared) => (shared, true),
            None => (shared, false),
        };
        // A source may have `=` as well: `user@fsid.fs=/` is one of Ceph.
        let at = shared.rfind("=/").ok_or_else(wrong)?;
        let (source, folder) = (&shared[..at], &shared[at + 1..]);
        if source.is_empty() {
            return Err(wrong());
        }
        let users = user.map(|user| (EVERYBODY.to_owned(), user)).into_iter().collect();
        Share::new(source, Terms { folder: folder.into(), write, owners: None, users })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> User {
        text.parse().unwrap()
    }

    #[test]
    fn an_option_is_a_share() {
        let share: Share = "nfs1:/export=/mnt/export".parse().unwrap();
        assert_eq!((share.source(), share.folder()), ("nfs1:/export", Path::new("/mnt/export")));
        assert!(!share.is_writable() && share.is_for("alice") && share.user("alice").is_none());
        let share: Share = "nfs1:/export/=/mnt/e:rw:as=1000:100,44".parse().unwrap();
        assert_eq!((share.source(), share.folder()), ("nfs1:/export", Path::new("/mnt/e")));
        assert_eq!((share.is_writable(), share.user("bob")), (true, Some(&user("1000:100,44"))));
        let share: Share = "me@1-2.fs=/=/mnt/ceph:as=0:0".parse().unwrap();
        assert_eq!((share.source(), share.folder()), ("me@1-2.fs=", Path::new("/mnt/ceph")));
        for text in ["", "nfs1:/export", "=/mnt", "nfs1:/export=mnt", "/mnt:as=1:1"] {
            assert_eq!(text.parse::<Share>(), Err(BadShare::Form(text.into())), "{text}");
        }
        let said = |text: &str| text.parse::<Share>().unwrap_err().to_string();
        assert!(said("a=/b:as=alice").starts_with("`alice` is no user: write UID:GID"));
        assert!(said("a=/b:rw").starts_with("files of a are to be written, and it has no users"));
        assert_eq!(said("a/../b=/c"), "`a/../b` is no source of files: it has a part `.` or `..`");
    }

    #[derive(serde::Deserialize)]
    struct Settings {
        files: BTreeMap<String, Terms>,
    }

    fn of_toml(text: &str) -> Result<Share, String> {
        let settings: Settings = toml::from_str(&format!("[files.'nfs1:/export']\n{text}"))
            .map_err(|error| error.message().to_owned())?;
        let (source, terms) = settings.files.into_iter().next().unwrap();
        Share::new(&source, terms).map_err(|error| error.to_string())
    }

    #[test]
    fn a_table_is_a_share() {
        let share = of_toml(
            "folder = '/mnt/export'\nwrite = true\nowners = ['alice', 'bob']\n\
             users = { alice = '1000:100', '*' = '1001:100' }",
        )
        .unwrap();
        assert_eq!(share.folder(), Path::new("/mnt/export"));
        assert!(share.is_writable() && share.is_for("alice") && !share.is_for("carol"));
        assert_eq!(share.user("alice"), Some(&user("1000:100")));
        assert_eq!(share.user("bob"), Some(&user("1001:100")));
        assert_eq!(of_toml("folder = '/mnt'").unwrap().user("alice"), None);
    }

    #[test]
    fn mistakes_are_told() {
        let said = |text: &str| of_toml(text).unwrap_err();
        assert!(said("write = true").contains("missing field `folder`"));
        assert!(said("folder = '/a'\nowner = ['x']").contains("unknown field `owner`"));
        assert!(said("folder = '/a'\nusers = { x = '12' }").contains("`12` is no user"));
        assert!(said("folder = 'a'").contains("a whole path, and is a"));
        assert!(said("folder = '/a'\nowners = []").starts_with("nobody may use files of nfs1:"));
        assert_eq!(
            said("folder = '/a'\nowners = ['x']\nusers = { y = '1:1' }"),
            "nfs1:/export has a user for y, who is not among its owners"
        );
        assert!(said("folder = '/a'\nwrite = true").contains("it has no users"));
    }
}
