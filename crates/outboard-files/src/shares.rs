//! The shares of a server, with their folders opened.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::name::Name;
use crate::refused::{Refused, Unopened};
use crate::share::{BadShare, MOST_SHARES, Share};
use crate::turns::Turns;

/// A share whose folder is open: it stays the folder, whatever its path leads to later.
pub(crate) struct Open {
    pub(crate) share: Share,
    pub(crate) turns: Turns,
    folder: OwnedFd,
}

impl Open {
    /// Waits for the folder's file system for as long as `limit`.
    fn new(share: Share, limit: Duration) -> Result<Open, BadShare> {
        let turns = Turns::new(share.source());
        let (path, source) = (share.folder().to_owned(), share.source().to_owned());
        let opened = turns.run(limit, move || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
                .map_err(|error| Refused::Unopened { share: source, why: error.into() })
        });
        let folder = opened.map_err(|refused| BadShare::Folder {
            share: share.source().to_owned(),
            folder: share.folder().to_owned(),
            reason: match refused {
                Refused::Unopened { why: Unopened::Missing, .. } => "it is no folder".to_owned(),
                Refused::Unopened { why, .. } => why.to_string(),
                Refused::Silent { .. } => "its file system does not answer".to_owned(),
                other => other.to_string(),
            },
        })?;
        Ok(Open { share, turns, folder })
    }

    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    pub(crate) fn source(&self) -> String {
        self.share.source().to_owned()
    }
}

/// All shares of a server.
pub(crate) struct Shares {
    /// Longer sources first.
    all: Vec<Arc<Open>>,
}

impl Shares {
    pub(crate) fn open(shares: Vec<Share>, limit: Duration) -> Result<Shares, BadShare> {
        if shares.len() > MOST_SHARES {
            return Err(BadShare::TooMany);
        }
        let mut shares = shares;
        shares.sort_by(|a, b| {
            b.source().len().cmp(&a.source().len()).then_with(|| a.source().cmp(b.source()))
        });
        if let Some(pair) = shares.windows(2).find(|pair| pair[0].source() == pair[1].source()) {
            return Err(BadShare::Twice(pair[0].source().to_owned()));
        }
        let all = shares.into_iter().map(|share| Open::new(share, limit).map(Arc::new));
        Ok(Shares { all: all.collect::<Result<_, _>>()? })
    }

    /// The share to which a file belongs, and its path below the share's folder. The longest source
    /// wins: a share in a share may be for fewer owners.
    pub(crate) fn find<'a>(&self, name: &'a Name) -> Option<(&Arc<Open>, &'a [u8])> {
        self.all.iter().find_map(|open| Some((open, name.below(open.share.source())?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Folder;

    fn share(source: &str, folder: &Folder) -> Share {
        format!("{source}={}", folder.0.path().display()).parse().unwrap()
    }

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn the_longest_source_wins() {
        let folder = Folder::new();
        let sources = ["nfs1:/export", "nfs1:/export/models", "nfs1:/export/models2", "nfs1:/"];
        let shares = sources.map(|source| share(source, &folder)).to_vec();
        let shares = Shares::open(shares, LIMIT).unwrap();
        let found = |source: &str, path: &str| {
            let name = Name::new(source, path.as_bytes()).unwrap();
            let (open, path) = shares.find(&name)?;
            Some((open.source(), String::from_utf8(path.to_vec()).unwrap()))
        };
        let is = |source: &str, path: &str| Some((source.to_owned(), path.to_owned()));
        assert_eq!(found("nfs1:/export", "a"), is("nfs1:/export", "a"));
        assert_eq!(found("nfs1:/export", "models/a"), is("nfs1:/export/models", "a"));
        assert_eq!(found("nfs1:/", "export/models/a/b"), is("nfs1:/export/models", "a/b"));
        assert_eq!(found("nfs1:/export/models2", "a"), is("nfs1:/export/models2", "a"));
        assert_eq!(found("nfs1:/export", "models3/a"), is("nfs1:/export", "models3/a"));
        assert_eq!(found("nfs1:/other", "a"), is("nfs1:", "other/a"));
        assert_eq!(found("nfs2:/export", "a"), None);
    }

    #[test]
    fn what_cannot_be_shared_is_told() {
        let folder = Folder::new();
        let file = folder.write("file", b"");
        let said = |shares: Vec<Share>| match Shares::open(shares, LIMIT) {
            Ok(_) => panic!("they can be shared"),
            Err(error) => error.to_string(),
        };
        let twice = vec![share("a:/b", &folder), share("a:/b/", &folder)];
        assert_eq!(said(twice), "a:/b is shared twice");
        let many = (0..=MOST_SHARES).map(|number| share(&format!("a:/{number}"), &folder));
        assert_eq!(said(many.collect()), "more than 64 sources of files are shared");
        for no_folder in [folder.path("missing"), file] {
            let text = format!("a:/b={}", no_folder.display());
            let sentence = format!(
                "{}, the folder of a:/b, cannot be opened: it is no folder",
                no_folder.display()
            );
            assert_eq!(said(vec![text.parse().unwrap()]), sentence);
        }
    }
}
