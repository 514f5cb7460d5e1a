//! What administrators show at the socket: a secret in a file beside it.
//!
//! Every process of the server's user may connect to the socket, so its workers may, too. They read
//! no file there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use outboard_transport::random;
use subtle::ConstantTimeEq;

/// A secret is not longer, as text.
const LONGEST: usize = 1024;

/// Where the secret of a socket is: `9470.admin.sock` has `9470.admin.secret`.
pub(crate) fn beside(socket: &Path) -> PathBuf {
    socket.with_extension("secret")
}

/// The secret of a socket; none if there is none, as with servers of releases that ask for none.
pub(super) fn read(socket: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(beside(socket)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A secret that is not in its place yet: there may be another server's.
#[derive(Debug)]
pub(crate) struct Draft {
    unfinished: PathBuf,
    path: PathBuf,
    text: String,
}

/// A server's own, in its file as long as this lives.
#[derive(Debug)]
pub(crate) struct Secret {
    path: PathBuf,
    text: String,
}

impl Draft {
    /// Makes one for a socket.
    pub(crate) fn make(socket: &Path) -> io::Result<Draft> {
        let path = beside(socket);
        let text = format!("{:032x}", u128::from_le_bytes(random()?));
        let unfinished = path.with_extension("secret.part");
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // New, so that it is nobody else's file, nor what a link leads to.
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        Ok(Draft { unfinished, path, text })
    }

    /// Puts it in the place of an earlier server's, which is no more.
    pub(crate) fn place(self) -> io::Result<Secret> {
        fs::rename(self.unfinished, &self.path)?;
        Ok(Secret { path: self.path, text: self.text })
    }
}

impl Secret {
    /// Whether this is it.
    pub(crate) fn is(&self, shown: Option<&str>) -> bool {
        shown.is_some_and(|shown| {
            shown.len() <= LONGEST && bool::from(shown.as_bytes().ct_eq(self.text.as_bytes()))
        })
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_secret_is_its_users_alone_and_each_server_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("1.admin.sock");
        assert_eq!(read(&socket).unwrap(), None);
        // A link that somebody has left there leads nowhere.
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        symlink(&other, folder.path().join("1.admin.secret.part")).unwrap();
        symlink(&other, beside(&socket)).unwrap();
        let first = Draft::make(&socket).unwrap().place().unwrap();
        assert_eq!(fs::metadata(&other).unwrap().len(), 0);
        assert_eq!(fs::symlink_metadata(beside(&socket)).unwrap().mode() & 0o7777, 0o600);
        let shown = read(&socket).unwrap();
        assert!(first.is(shown.as_deref()));
        assert!(
            !first.is(None)
                && !first.is(Some(""))
                && !first.is(shown.as_deref().map(|text| &text[1..]))
        );
        let second = Draft::make(&socket).unwrap().place().unwrap();
        assert!(!second.is(shown.as_deref()));
        drop(second);
        assert_eq!(read(&socket).unwrap(), None);
    }
}
