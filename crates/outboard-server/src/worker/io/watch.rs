//! Seeing the client or the supervisor go, even while the main thread is stuck in a driver call.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use outboard_transport::{Interest, Stream, tcp, write_all};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{Bulk, Registry, SERVED, exit};
use crate::control::{self, ToWorker};

/// How long the main thread has to end the process its own way after the client is gone.
const GRACE: Duration = Duration::from_millis(300);

/// The kernel kills this process when the thread that started it ends: the supervisor has only one.
pub(super) fn die_with_the_supervisor() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Starts the threads that watch the client's connection and the supervisor's socket.
///
/// `lane_welcome` is what a new lane's client is told.
pub(super) fn start(
    control: Arc<OwnedFd>,
    registry: Registry,
    stream: Arc<dyn Stream>,
    bulk: Bulk,
    lane_welcome: Vec<u8>,
) -> io::Result<()> {
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    spawn("watch-client").spawn(move || watch_client(&*stream))?;
    spawn("watch-supervisor").spawn(move || watch_supervisor(&control, &registry, &bulk, &lane_welcome))?;
    Ok(())
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

fn watch_supervisor(control: &OwnedFd, registry: &Registry, bulk: &Bulk, lane_welcome: &[u8]) {
    while let Ok(Some((message, connection))) = control::receive::<ToWorker>(control.as_fd()) {
        match (message, connection) {
            (ToWorker::Lane, Some(connection)) => {
                if let Err(error) = add_lane(bulk, connection, lane_welcome) {
                    tracing::warn!(%error, "a lane cannot be used");
                }
            }
            (ToWorker::Answer { request, payload }, descriptor) => {
                registry.answered(request, payload.map(|payload| (payload, descriptor)));
            }
            (ToWorker::Lane, None) => tracing::error!("a lane came without its connection"),
            (ToWorker::Start(_) | ToWorker::Board, _) => {
                tracing::error!("the supervisor starts a second session in one worker");
            }
        }
    }
    exit(SERVED)
}

fn add_lane(bulk: &Bulk, connection: OwnedFd, welcome: &[u8]) -> io::Result<()> {
    let stream = tcp::from_descriptor(connection)?;
    // It fits into the empty socket buffer, so this does not wait for the client.
    write_all(&*stream, welcome)?;
    bulk.add_lane(stream)
}
