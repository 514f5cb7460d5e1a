//! Moves a session from the connection that reached the server to shared memory, if possible.
//!
//! The welcome says on which machine the server runs and where its Unix socket is. A client on the
//! same machine that may connect to the socket moves its session there; otherwise the session stays
//! where it is.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use outboard_transport::unix::{self, Unix};
use outboard_transport::{Endpoint, Memory, Stream, Transport, host};
use outboard_wire::handshake::{Hello, Local, Purpose, Welcome};

use super::config::Choice;
use super::config::Config;
use super::connect::handshake;
use super::error::ConnectError;

/// The stream that carries the session's commands, and the memory shared with the worker.
pub(super) type Moved = (Arc<dyn Stream>, Option<Memory>);

/// Moves the session, if it can be.
pub(super) fn settle(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    welcome: &Welcome,
    config: &Config,
) -> Result<Moved, ConnectError> {
    if !matches!(hello.purpose, Purpose::Session { .. } | Purpose::Management { .. }) {
        return Ok((stream, None));
    }
    let deadline = Instant::now() + config.timeout;
    let failed = |error| ConnectError::Memory { address: address.to_owned(), error };
    if let Some(socket) = socket(&*stream) {
        check_name(address, config.transport)?;
        drop(stream);
        let (stream, memory) =
            socket.and_then(|socket| Memory::move_to(socket, deadline)).map_err(failed)?;
        return Ok((stream, Some(memory)));
    }
    check_name(address, config.transport)?;
    if matches!(config.transport, Choice::Tcp | Choice::Vsock) {
        return Ok((stream, None));
    }
    let refused = |reason: String| match config.transport {
        Choice::Shm => Err(ConnectError::Transport { wanted: "shm", reason }),
        Choice::Auto | Choice::Tcp | Choice::Vsock => Ok(()),
    };
    let local = match reachable(welcome) {
        Ok(local) => local,
        Err(reason) => return refused(reason).map(|()| (stream, None)),
    };
    let reached = reach(local, hello, welcome, config, deadline);
    let socket = match reached {
        Ok(socket) => socket,
        Err(error) => {
            return refused(unusable(local, &error)).map(|()| (stream, None));
        }
    };
    // From here on the worker may have moved already: there is no way back.
    let (moved, memory) = Memory::move_to(socket, deadline).map_err(failed)?;
    Ok((moved, Some(memory)))
}

/// Whether a session with the server that has sent this welcome could use the transport that is
/// asked for.
pub fn check_transport(
    address: &str,
    welcome: &Welcome,
    config: &Config,
) -> Result<(), ConnectError> {
    check_name(address, config.transport)?;
    match config.transport {
        Choice::Shm if Endpoint::unix_path(address).is_none() => {
            let reached = reachable(welcome).and_then(|local| {
                Unix.connect(&local.path, config.timeout)
                    .map(drop)
                    .map_err(|error| unusable(local, &error))
            });
            reached.map_err(|reason| ConnectError::Transport { wanted: "shm", reason })
        }
        _ => Ok(()),
    }
}

/// Whether a server of that name can be reached by what is asked for.
fn check_name(address: &str, choice: Choice) -> Result<(), ConnectError> {
    let kind = match address.parse() {
        Ok(Endpoint::Unix(_)) => "Unix socket",
        Ok(Endpoint::Vsock(_)) => "vsock",
        _ => "network address",
    };
    let (wanted, by, other) = match choice {
        Choice::Tcp => ("tcp", "network address", "HOST:PORT"),
        Choice::Vsock => ("vsock", "vsock", "vsock:host"),
        Choice::Auto | Choice::Shm => return Ok(()),
    };
    if kind == by {
        return Ok(());
    }
    let reason = format!("the server is named by its {kind}, {address}; name it by {other}");
    Err(ConnectError::Transport { wanted, reason })
}

fn unusable(local: &Local, error: &io::Error) -> String {
    format!("the server's socket {} cannot be used: {error}", local.path)
}

/// The connection under a stream, if it is a Unix socket.
fn socket(stream: &dyn Stream) -> Option<io::Result<OwnedFd>> {
    stream.descriptor().filter(|fd| unix::is_unix(*fd)).map(|fd| fd.try_clone_to_owned())
}

/// The server's socket, if it is on this machine.
fn reachable(welcome: &Welcome) -> Result<&Local, String> {
    match &welcome.local {
        None => Err("the server has no Unix socket; start it with `outboard serve --socket PATH`"
            .to_owned()),
        Some(local) if local.host == 0 || local.host != host::id() => {
            Err("the server is not on this machine".to_owned())
        }
        Some(local) => Ok(local),
    }
}

/// Connects to the session's worker over the server's socket.
fn reach(
    local: &Local,
    hello: &Hello,
    welcome: &Welcome,
    config: &Config,
    deadline: Instant,
) -> io::Result<OwnedFd> {
    let stream = Unix.connect(&local.path, config.timeout)?;
    let socket = socket(&*stream).ok_or(io::ErrorKind::NotConnected)??;
    // The path is the server's. If this process sees other files than the server, another process
    // may listen there.
    if unix::user(&socket).is_none_or(|user| user != local.user) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it belongs to another user than the server",
        ));
    }
    let purpose = Purpose::Memory { session: welcome.session, key: welcome.key };
    let hello = Hello { purpose, ..hello.clone() };
    handshake(&*stream, &local.path, &hello, deadline).map_err(io::Error::other)?;
    Ok(socket)
}
