//! Sockets of servers that were killed: the next server, whatever its port, removes them from their
//! folder.
//!
//! The system knows whether a process has a socket: connecting with a socket of another type does
//! not reach that process, and fails with another error than without a process. This also holds for
//! a server that has bound its socket and does not listen yet.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::local::check_folder;
use crate::admin::secret;

/// How long another server may take to put a socket into its folder.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// The folder's lock: while this lives, no other server replaces a socket in it by its own.
#[derive(Debug)]
pub(super) struct Turn(File);

impl Turn {
    /// Waits for it. Without the lock the folder is still used, with less certainty.
    pub(super) fn wait(folder: &Path) -> io::Result<Turn> {
        let (folder, deadline) = (File::open(folder)?, Instant::now() + PATIENCE);
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Turn(folder)),
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Whether a file in the folder is a socket that no process has.
fn is_nobodys(folder: &File, name: &OsStr) -> bool {
    // However long the folder's own path is.
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    // A file that is no socket fails as a socket without a process does.
    if !fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket()) {
        return false;
    }
    // Nothing of ours is of this type.
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let outcome = socket.and_then(|socket| connect(&socket, &SocketAddrUnix::new(&path)?));
    outcome == Err(Errno::CONNREFUSED)
}

/// Removes the socket of a server that is no more, if that is what is there. True if it was.
pub(super) fn remove(path: &Path) -> io::Result<bool> {
    let nobodys = is_nobodys(&File::open(folder_of(path))?, path.file_name().unwrap_or_default());
    if nobodys {
        fs::remove_file(path)?;
    }
    Ok(nobodys)
}

/// Removes what servers that were killed have left in the usual folder: their own sockets, and what
/// was noted of sessions whose workers are no more, either. Sessions that wait for their server
/// stay.
pub(super) fn sweep(folder: &Path) {
    // A folder that other users own or can write to is left alone.
    let Ok(turn) = check_folder(folder, 0o022).and_then(|()| Turn::wait(folder)) else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let text = name.to_string_lossy();
        if is_a_servers(&text) && is_nobodys(&turn.0, &name) && fs::remove_file(&path).is_ok() {
            // Another file beside it is there only for administrators' sockets.
            let _ = fs::remove_file(secret::beside(&path));
            tracing::info!(path = %path.display(), "removed the socket of a server that is no more");
        } else if text.ends_with(".sessions") && check_folder(&path, 0o077).is_ok() {
            sweep_sessions(&path);
        }
    }
}

/// Whether this is how a server's socket in the usual folder is called: PORT.sock, PORT.admin.sock.
fn is_a_servers(name: &str) -> bool {
    let port = name.strip_suffix(".sock").map(|rest| rest.strip_suffix(".admin").unwrap_or(rest));
    port.is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Of a session whose worker has ended nothing is needed, be there a server or not.
fn sweep_sessions(folder: &Path) {
    let Ok(open) = File::open(folder) else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(session) = name.to_str().and_then(|name| name.strip_suffix(".sock")) else {
            continue;
        };
        if is_nobodys(&open, &name) {
            // Its server may be about to do the same.
            let _ = fs::remove_file(folder.join(format!("{session}.json")));
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt;
    use std::os::unix::net::UnixListener;

    use rustix::net::bind;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_what_is_nobodys_is_removed() {
        let above = tempfile::tempdir().unwrap();
        let folder = above.path().join("servers");
        let sessions = folder.join("127.0.0.1:9.sessions");
        DirBuilder::new().mode(0o700).recursive(true).create(&sessions).unwrap();
        for name in ["1.sock", "1.admin.sock", "9.sock", "else.sock", "127.0.0.1:9.sessions/a.sock"]
        {
            drop(UnixListener::bind(folder.join(name)).unwrap());
        }
        fs::write(folder.join("2.sock"), "no socket").unwrap();
        fs::write(folder.join("1.admin.secret"), "").unwrap();
        fs::write(sessions.join("a.json"), "").unwrap();
        let _serves = UnixListener::bind(folder.join("3.sock")).unwrap();
        // One that is just starting, and a worker that waits for its server.
        let kind =
            |kind| socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (starts, waits) = (kind(SocketType::STREAM), kind(SocketType::SEQPACKET));
        bind(&starts, &SocketAddrUnix::new(folder.join("4.sock")).unwrap()).unwrap();
        bind(&waits, &SocketAddrUnix::new(sessions.join("b.sock")).unwrap()).unwrap();
        fs::write(sessions.join("b.json"), "").unwrap();
        // While another process holds the lock, nothing is removed.
        let turn = Turn::wait(&folder).unwrap();
        sweep(&folder);
        assert_eq!(names(&folder).len(), 9);
        drop(turn);
        sweep(&folder);
        assert_eq!(
            names(&folder),
            ["127.0.0.1:9.sessions", "2.sock", "3.sock", "4.sock", "else.sock"]
        );
        assert_eq!(names(&sessions), ["b.json", "b.sock"]);
        drop((starts, waits));
        sweep(&folder);
        assert_eq!(names(&folder), ["127.0.0.1:9.sessions", "2.sock", "3.sock", "else.sock"]);
        assert!(names(&sessions).is_empty());
    }
}
