//! Seeing the client or the supervisor go, even while the main thread is stuck in a driver call.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use outboard_transport::{Interest, Stream, write_all};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::ending::Ending;
use super::home::Home;
use super::moving::{self, Moving};
use super::secure::Secure;
use super::{Bulk, Registry, SERVED, exit};
use crate::control::{self, ToWorker};

/// How long the main thread has to end the process its own way after the client is gone.
const GRACE: Duration = Duration::from_millis(300);

/// The kernel kills this process when the thread that started it ends: the supervisor has only one.
pub(super) fn die_with_the_supervisor() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// The session goes on when the supervisor is gone, unless the thread that watches the supervisor finds that it should not.
pub(super) fn outlive_the_supervisor() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Starts the thread that watches the client's connection.
pub(super) fn client(stream: Arc<dyn Stream>) -> io::Result<()> {
    spawn("watch-client", move || watch_client(&*stream))
}

/// What messages of the supervisor are for.
pub(super) struct Watched {
    pub(super) registry: Registry,
    pub(super) lanes: Lanes,
    pub(super) moving: Arc<Moving>,
    /// Where the session goes on without its supervisor.
    pub(super) home: Home,
}

/// Where lanes go.
pub(super) struct Lanes {
    pub(super) bulk: Bulk,
    /// What the client is told over further connections.
    pub(super) welcome: Vec<u8>,
    pub(super) secure: Option<Secure>,
}

/// Starts the thread that watches the supervisor's socket.
pub(super) fn supervisor(control: Arc<OwnedFd>, watched: Watched, ending: Arc<Ending>) -> io::Result<()> {
    spawn("watch-supervisor", move || watch_supervisor(control, &watched, &ending))
}

fn watch_client(stream: &dyn Stream) {
    while let Ok(ready) = stream.wait(Interest::HANGUP, None, None) {
        if ready.hangup {
            break;
        }
    }
    std::thread::sleep(GRACE);
    exit(SERVED)
}

fn watch_supervisor(mut control: Arc<OwnedFd>, watched: &Watched, ending: &Ending) {
    let Watched { registry, lanes, moving, home } = watched;
    loop {
        let (message, connection) = match control::receive::<ToWorker>(control.as_fd()) {
            Ok(Some(message)) => message,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(%error, "a supervisor says what makes no sense");
                continue;
            }
            Ok(None) | Err(_) => match home.next_supervisor(registry) {
                Some(next) => {
                    control = next;
                    continue;
                }
                None => break,
            },
        };
        match (message, connection) {
            (ToWorker::Lane { secure }, Some(connection)) => {
                if let Err(error) = lanes.add(connection, secure) {
                    tracing::warn!(%error, "a lane cannot be used");
                }
            }
            (ToWorker::Memory, Some(connection)) => {
                if let Err(error) = moving.arrived(connection, &lanes.welcome) {
                    tracing::warn!(%error, "no memory is shared with the client");
                }
            }
            (ToWorker::Answer { request, payload }, descriptor) => {
                registry.answered(request, payload.map(|payload| (payload, descriptor)));
            }
            (ToWorker::Suspend, _) => registry.suspend(),
            (ToWorker::Resume, _) => {
                if let Some(gate) = registry.gate() {
                    gate.open();
                }
            }
            (ToWorker::Trace { on, root }, _) => crate::worker::spans::set(on, root, &control),
            (ToWorker::End { sentence }, _) => ending.end(&sentence),
            (ToWorker::Unknown(number), _) => {
                tracing::debug!(number, "a supervisor of another release says what this worker does not know");
            }
            (ToWorker::Lane { .. } | ToWorker::Memory, None) => {
                tracing::error!("a descriptor was to come and did not");
            }
            (
                ToWorker::Warm(_)
                | ToWorker::Start(_)
                | ToWorker::Board
                | ToWorker::Home { .. }
                | ToWorker::Keep { .. }
                | ToWorker::Meter,
                _,
            ) => {
                tracing::error!("the supervisor starts a second session in one worker");
            }
        }
    }
    exit(SERVED)
}

impl Lanes {
    fn add(&self, connection: OwnedFd, encrypted: bool) -> io::Result<()> {
        let (stream, _) = moving::stream(connection)?;
        let (bulk, welcome) = (self.bulk.clone(), self.welcome.clone());
        let greet = move |stream: Arc<dyn Stream>| {
            // It fits into the empty socket buffer, so this does not wait for the client.
            write_all(&*stream, &welcome)?;
            bulk.add_lane(stream)
        };
        match &self.secure {
            _ if !encrypted => greet(stream),
            Some(secure) => secure.accept_lane(stream, greet),
            None => Err(io::Error::other("the session's connections are not encrypted")),
        }
    }
}
