//! The Unix socket for clients on this machine. Over it they may share memory with their worker, so
//! only chosen users may connect.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use outboard_wire::handshake::Local;
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};

use super::bytes_only::pass_descriptors;
use super::left_over::{self, Turn};

/// Whether and where to listen for clients on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Socket {
    /// Not at all.
    Off,
    /// At the usual path; if that cannot be, not at all.
    Usual,
    /// There.
    At(PathBuf),
}

/// The users who may connect to the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// The server's own user, and root.
    #[default]
    Owner,
    /// The group of the file, too.
    Group,
    /// Every user of the machine.
    All,
}

/// The socket, open.
pub(super) struct Door {
    listener: UnixListener,
    path: PathBuf,
    access: Access,
}

/// Folders where a server that this user can administer may have its sockets; it takes the first if
/// it is started as this process is.
pub fn usual_folders() -> Vec<PathBuf> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let (system, own) = (
        PathBuf::from("/run/outboard"),
        PathBuf::from(format!("/tmp/outboard-{}", geteuid().as_raw())),
    );
    let given = given.map(|folder| PathBuf::from(folder).join("outboard"));
    // The system's is root's, but a service's user may have it too.
    let [first, last] = if geteuid().is_root() { [system, own] } else { [own, system] };
    given.into_iter().chain([first, last]).collect()
}

/// The usual path: in the folder that the system gives a user or its services for the time they
/// run.
pub fn usual(port: u16) -> PathBuf {
    usual_folders().swap_remove(0).join(format!("{port}.sock"))
}

/// Makes the usual folder, if it is not there.
pub(super) fn make_usual_folder() -> io::Result<()> {
    make_folder(&usual_folders().swap_remove(0), Access::Owner)
}

/// Makes the folder, or checks that no other user can put a socket into it.
pub(super) fn make_folder(folder: &Path, access: Access) -> io::Result<()> {
    let mode = if access == Access::Owner { 0o700 } else { 0o755 };
    match DirBuilder::new().mode(mode).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_folder(folder, 0o022)
}

/// Checks that a folder is this user's, and that it gives others none of these rights.
pub(super) fn check_folder(folder: &Path, none_of: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & none_of != 0 {
        let what = if none_of & 0o044 != 0 { "read" } else { "write to" };
        let reason = format!("{} is not a folder that only this user can {what}", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(())
}

impl Door {
    /// Opens the socket, if there is to be one. `port` tells several servers apart.
    pub(super) fn open(socket: &Socket, access: Access, port: u16) -> io::Result<Option<Door>> {
        match socket {
            Socket::Off => Ok(None),
            Socket::At(path) => Door::listen(path, access).map(Some),
            Socket::Usual => {
                let path = usual(port);
                let folder = path.parent().unwrap_or(Path::new("/"));
                match make_folder(folder, access).and_then(|()| Door::listen(&path, access)) {
                    Ok(door) => Ok(Some(door)),
                    Err(error) => {
                        tracing::warn!(path = %path.display(), %error, "no socket for clients on this machine; they use TCP");
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Goes on with a socket that is open already, where it is to be.
    pub(super) fn go_on(
        listener: std::os::unix::net::UnixListener,
        access: Access,
    ) -> io::Result<Option<Door>> {
        let address = listener.local_addr()?;
        let Some(path) = address.as_pathname().map(Path::to_owned) else { return Ok(None) };
        pass_descriptors(listener.as_fd(), false);
        listener.set_nonblocking(true)?;
        Ok(Some(Door { listener: UnixListener::from_std(listener)?, path, access }))
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    pub(super) fn listen(path: &Path, access: Access) -> io::Result<Door> {
        let turn = Turn::wait(left_over::folder_of(path)).ok();
        let listener = match UnixListener::bind(path) {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && left_over::remove(path).unwrap_or(false) =>
            {
                UnixListener::bind(path)
            }
            outcome => outcome,
        }?;
        drop(turn);
        pass_descriptors(listener.as_fd(), false);
        let mode = match access {
            Access::Owner => 0o600,
            Access::Group => 0o660,
            Access::All => 0o666,
        };
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(Door { listener, path: path.to_owned(), access })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Its description for clients. A path that is no text, or relative, would mean nothing to
    /// them.
    pub(super) fn told(&self) -> Option<Local> {
        let path = std::fs::canonicalize(&self.path).ok()?.to_str()?.to_owned();
        Some(Local { host: outboard_transport::host::id(), user: geteuid().as_raw(), path })
    }

    /// The next client.
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// The same, if it is there.
    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.listener.poll_accept(cx).map_ok(|(stream, _)| stream)
    }

    /// Whether the client's user may connect. For groups and for all users, the file's permissions
    /// suffice.
    pub(super) fn admits(&self, stream: &UnixStream) -> bool {
        let own = geteuid().as_raw();
        self.access != Access::Owner
            || stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream as Blocking;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn the_socket_is_its_owners_and_goes_with_the_server() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("door");
        make_folder(&folder, Access::Owner).unwrap();
        make_folder(&folder, Access::Owner).unwrap();
        let path = folder.join("1.sock");
        runtime().block_on(async {
            let door = Door::listen(&path, Access::Owner).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            assert_eq!(std::fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
            assert!(Door::listen(&path, Access::Owner).is_err(), "another server has it");
            let told = door.told().unwrap();
            assert!(told.host != 0 && told.path.ends_with("/1.sock"));
            let _client = Blocking::connect(&path).unwrap();
            assert!(door.admits(&door.accept().await.unwrap()));
            drop(door);
            assert!(!path.exists());
            // The socket of a server that was killed.
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            drop(Door::listen(&path, Access::All).unwrap());
            // A file that is no socket belongs to somebody else.
            std::fs::write(&path, "kept").unwrap();
            assert!(Door::listen(&path, Access::Owner).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        });
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_folder(&folder, Access::Owner).is_err(), "anybody could put a socket there");
    }
}
