//! Moves a session from the connection that reached the server to a better one: shared memory or
//! RDMA adapters, if possible.
//!
//! The welcome says on which machine the server runs and where its Unix socket is. A client on the
//! same machine that may connect to the socket moves its session there. From a virtual machine of
//! the server's host it moves to memory that both share; from other machines to adapters, if client
//! and server have them. Otherwise the session stays where it is.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use outboard_transport::unix::{self, Unix};
use outboard_transport::{Endpoint, Memory, Stream, Transport, host};
use outboard_wire::handshake::ivshmem::IVSHMEM;
use outboard_wire::handshake::rdma::{Able, Adapters as Offer, RDMA};
use outboard_wire::handshake::{Extensions, Hello, Local, Purpose, Welcome};

use super::adapters::Adapters;
use super::again::part;
use super::config::{Choice, Config};
use super::connect::{Secured, handshake};
use super::error::ConnectError;
use super::movable::{COMMANDS, Movable};
use super::region::{self, Region};

/// Why a device is of no use with a server that says nothing of it.
const UNKNOWN_THERE: &str = "the server does not know of such memory: it is of an earlier release, \
                             or is on this machine";

/// The stream that carries the session's commands, and the memory shared with the worker.
pub(super) type Moved = (Arc<dyn Stream>, Option<Memory>);

/// What a session might use and does not, and why.
pub(super) struct Unused {
    name: &'static str,
    reason: String,
}

impl fmt::Display for Unused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

/// What moves the session's connections, if something does. The server has been told of the device,
/// if there is one.
pub(super) fn movable(
    welcome: &Welcome,
    address: &str,
    config: &Config,
    device: region::Found,
) -> Result<(Option<Movable>, Option<Unused>), ConnectError> {
    let adapters = adapters(welcome, address, config)?;
    let adapters = adapters.map(|adapters| Movable::Adapters(Box::new(adapters)));
    let region = match device {
        Ok(None) => return Ok((adapters, None)),
        Ok(Some(device)) => part(welcome, IVSHMEM, address)?
            .ok_or_else(|| UNKNOWN_THERE.to_owned())
            .and_then(|offer| Region::new(&offer, device)),
        Err(reason) => Err(reason),
    };
    match region {
        Ok(region) => Ok((Some(Movable::Region(region)), None)),
        Err(reason) if config.transport == Choice::Ivshmem => Err(region::unusable(reason)),
        Err(reason) => Ok((adapters, Some(Unused { name: "ivshmem", reason }))),
    }
}

/// The adapters to which the session's connections may move, if there are some.
fn adapters(
    welcome: &Welcome,
    address: &str,
    config: &Config,
) -> Result<Option<Adapters>, ConnectError> {
    let offer: Option<Offer> = part(welcome, RDMA, address)?;
    let missing = offer.as_ref().map(|offer| offer.missing.clone());
    let adapters = Adapters::new(offer, config);
    if adapters.is_none() && config.transport == Choice::Rdma {
        let reason = match (config.rdma.allowed.ports(), missing) {
            (Err(error), _) => error.to_string(),
            (Ok(_), Some(missing)) => format!("the server says: {missing}"),
            (Ok(_), None) => "the server offers none: it runs with `--rdma off`, is of an earlier \
                           release, or the client is in a virtual machine or on a Unix socket"
                .to_owned(),
        };
        return Err(ConnectError::Transport { wanted: "rdma", reason });
    }
    Ok(adapters)
}

/// Moves the session, if it can be. The worker of a movable one is told whether its connection
/// moves, whatever becomes of it.
pub(super) fn settle(
    stream: Arc<dyn Stream>,
    address: &str,
    hello: &Hello,
    welcome: &Welcome,
    config: &Config,
    (movable, secured): (Option<&Movable>, Option<&Secured>),
) -> Result<(Moved, Option<Unused>), ConnectError> {
    let Some(movable) = movable else {
        return Ok((settle_here(stream, address, hello, welcome, config)?, None));
    };
    if config.transport == Choice::Auto && reachable(welcome).is_ok() {
        movable.stay(&*stream, address)?;
        return Ok((settle_here(stream, address, hello, welcome, config)?, None));
    }
    let deadline = Instant::now() + config.timeout;
    let (stream, why_not) = movable.settle(stream, secured, COMMANDS, address, deadline)?;
    let (name, choice) = movable.to();
    match why_not {
        Some(reason) if config.transport == choice => {
            Err(ConnectError::Transport { wanted: name, reason })
        }
        why_not => Ok(((stream, None), why_not.map(|reason| Unused { name, reason }))),
    }
}

/// The same among what this machine has.
fn settle_here(
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
        let (stream, memory) = socket
            .and_then(|socket| Memory::prepare()?.move_to(socket, deadline))
            .map_err(failed)?;
        return Ok((stream, Some(memory)));
    }
    check_name(address, config.transport)?;
    if !matches!(config.transport, Choice::Auto | Choice::Shm) {
        return Ok((stream, None));
    }
    let refused = |reason: String| match config.transport {
        Choice::Shm => Err(ConnectError::Transport { wanted: "shm", reason }),
        _ => Ok(()),
    };
    let local = match reachable(welcome) {
        Ok(local) => local,
        Err(reason) => return refused(reason).map(|()| (stream, None)),
    };
    let memory = match Memory::prepare() {
        Ok(memory) => memory,
        Err(error) => return refused(error.to_string()).map(|()| (stream, None)),
    };
    let reached = reach(local, hello, welcome, config, deadline);
    let socket = match reached {
        Ok(socket) => socket,
        Err(error) => {
            return refused(unusable(local, &error)).map(|()| (stream, None));
        }
    };
    // From here on the worker may have moved already: there is no way back.
    let (moved, memory) = memory.move_to(socket, deadline).map_err(failed)?;
    Ok((moved, Some(memory)))
}

/// Has the server say in its welcome what [`check_transport`] looks for.
pub fn ask_about_transport(more: &mut Extensions, config: &Config) {
    if config.transport == Choice::Rdma {
        more.set(RDMA, &Able);
    }
}

/// Whether a session with the server that has sent this welcome could use the transport that is
/// asked for.
pub fn check_transport(
    address: &str,
    welcome: &Welcome,
    config: &Config,
) -> Result<(), ConnectError> {
    check_name(address, config.transport)?;
    if Endpoint::unix_path(address).is_some() {
        // There is no other way to such a server.
        return Memory::prepare()
            .map(drop)
            .map_err(|error| ConnectError::Memory { address: address.to_owned(), error });
    }
    match config.transport {
        Choice::Shm => {
            let reached = reachable(welcome).and_then(|local| {
                Unix.connect(&local.path, config.timeout)
                    .map(drop)
                    .map_err(|error| unusable(local, &error))
            });
            reached.map_err(|reason| ConnectError::Transport { wanted: "shm", reason })
        }
        Choice::Ivshmem => region::check(config),
        Choice::Rdma => match adapters(welcome, address, config)? {
            Some(adapters) => adapters.check().map_err(|error| ConnectError::Transport {
                wanted: "rdma",
                reason: error.to_string(),
            }),
            None => Ok(()),
        },
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
        Choice::Rdma => ("rdma", "network address", "HOST:PORT"),
        Choice::Vsock => ("vsock", "vsock", "vsock:host"),
        Choice::Ivshmem if kind == "vsock" => return Ok(()),
        Choice::Ivshmem => ("ivshmem", "network address", "vsock:host or HOST:PORT"),
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
