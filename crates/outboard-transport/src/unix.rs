//! Unix sockets, over which shared memory is set up.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

use crate::descriptor::{Socket, over_a_socket};
use crate::stream::{Capabilities, Stream};
use crate::transport::{Listener, Transport};

/// Plain Unix sockets. Addresses are paths.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unix;

#[derive(Debug)]
pub(crate) struct UnixServer {
    listener: UnixListener,
    path: PathBuf,
}

#[derive(Debug)]
struct UnixConnection {
    socket: Socket,
}

/// How long a client waits before it connects again to a server whose queue of clients is full.
const CONNECTS_AGAIN_AFTER: Duration = Duration::from_millis(2);

/// Connects to a socket at a path.
pub(crate) fn dial(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let deadline = Instant::now() + timeout;
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(rustix::io::Errno::AGAIN) if Instant::now() < deadline => {
                std::thread::sleep(CONNECTS_AGAIN_AFTER)
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a descriptor is a Unix socket.
pub fn is_unix(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(socket).is_ok_and(|family| family == AddressFamily::UNIX)
}

/// The user of the process that listens, or that has connected, at the other end.
pub fn user(socket: impl AsFd) -> Option<u32> {
    sockopt::socket_peercred(socket).ok().map(|peer| peer.uid.as_raw())
}

/// Makes a stream of a connected Unix socket, as one that another process has accepted.
///
/// # Errors
/// The system's error if the descriptor cannot be made non-blocking.
pub fn from_descriptor(fd: OwnedFd) -> io::Result<Arc<dyn Stream>> {
    Ok(Arc::new(UnixConnection { socket: Socket::new(fd)? }))
}

impl UnixServer {
    pub(crate) fn bind(path: &str) -> io::Result<UnixServer> {
        Ok(UnixServer { listener: UnixListener::bind(path)?, path: path.into() })
    }

    pub(crate) fn take(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.accept()?.0.into())
    }

    pub(crate) fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

impl Drop for UnixServer {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Transport for Unix {
    fn name(&self) -> &'static str {
        "unix"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        from_descriptor(dial(Path::new(address), timeout)?)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(UnixServer::bind(address)?))
    }
}

impl Listener for UnixServer {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        from_descriptor(self.take()?)
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.path())
    }
}

impl Stream for UnixConnection {
    over_a_socket!();

    fn capabilities(&self) -> Capabilities {
        Capabilities { descriptor: true, striping: true, ..Capabilities::default() }
    }

    fn transport(&self) -> &'static str {
        "unix"
    }

    fn peer(&self) -> String {
        match sockopt::socket_peercred(self.socket.fd().as_fd()) {
            Ok(peer) => format!("process {}", peer.pid.as_raw_nonzero()),
            Err(_) => "a process of this machine".to_owned(),
        }
    }
}

/// Paths for tests, each used once.
#[cfg(test)]
pub(crate) fn test_path() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name =
        format!("outboard-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::conformance!(Unix, &test_path());

    #[test]
    fn a_path_without_a_server_is_refused_at_once() {
        let error = Unix.connect(&test_path(), Duration::from_secs(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(is_unix(
            Unix.listen(&test_path())
                .map(|_| crate::pipe::pair().unwrap().0)
                .unwrap()
                .descriptor()
                .unwrap()
        ));
    }
}
