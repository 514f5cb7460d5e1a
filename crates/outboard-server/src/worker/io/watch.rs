//! Seeing the client or the supervisor go, even while the main thread is stuck in a driver call.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use outboard_transport::{Interest, Stream};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::{SERVED, exit};
use crate::control::{self, ToWorker};

/// How long the main thread has to end the process its own way after the client is gone.
const GRACE: Duration = Duration::from_millis(300);

/// The kernel kills this process when the thread that started it ends: the supervisor has only one.
pub(super) fn die_with_the_supervisor() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

/// Starts the threads that watch the client's connection and the supervisor's socket.
pub(super) fn start(control: OwnedFd, stream: Arc<dyn Stream>) -> io::Result<()> {
    let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
    spawn("watch-client").spawn(move || watch_client(&*stream))?;
    spawn("watch-supervisor").spawn(move || watch_supervisor(&control))?;
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

fn watch_supervisor(control: &OwnedFd) {
    while let Ok(Some((message, _connection))) = control::receive::<ToWorker>(control.as_fd()) {
        match message {
            // Bulk lanes come with the copies that use them.
            ToWorker::Lane => tracing::debug!("a lane was offered"),
            ToWorker::Start(_) => tracing::error!("the supervisor starts a second session in one worker"),
        }
    }
    exit(SERVED)
}
