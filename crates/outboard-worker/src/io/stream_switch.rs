//! Moves a session from its first connection to the one that carries its commands.
//!
//! A client at the Unix socket sends shared memory over it. A client that connected otherwise and
//! finds itself on this machine sends it, before its first command, over a further connection,
//! which the supervisor hands to the worker.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::{
    Interest, Memory, PEER_CHECK, Readiness, Stream, Waker, from_descriptor, shm, unix, write_all,
};
use parking_lot::Mutex;

/// How long a client may take to bring its memory.
const PATIENCE: Duration = Duration::from_secs(20);

/// The session's new stream, if it moves.
pub(super) struct StreamSwitch {
    place: Mutex<Option<(Arc<dyn Stream>, Memory)>>,
    waker: Waker,
}

/// A stream of a connection of any kind; and, if it is one to this machine, the connection once
/// more.
pub(super) fn stream(connection: OwnedFd) -> io::Result<(Arc<dyn Stream>, Option<OwnedFd>)> {
    let again = unix::is_unix(connection.as_fd()).then(|| connection.try_clone()).transpose()?;
    Ok((from_descriptor(connection)?, again))
}

fn take_up(socket: OwnedFd) -> io::Result<(Arc<dyn Stream>, Memory)> {
    Memory::take_up(socket, Instant::now() + PATIENCE)
}

impl StreamSwitch {
    pub(super) fn new() -> io::Result<StreamSwitch> {
        Ok(StreamSwitch { place: Mutex::new(None), waker: Waker::new()? })
    }

    /// The supervisor has passed on a connection that brings memory.
    pub(super) fn arrived(&self, connection: OwnedFd, welcome: &[u8]) -> io::Result<()> {
        let (stream, socket) = stream(connection)?;
        let socket = socket.ok_or_else(|| io::Error::other("memory cannot come over TCP"))?;
        // It fits into the empty socket buffer, so this does not wait for the client.
        write_all(&*stream, welcome)?;
        drop(stream);
        let (stream, memory) = take_up(socket)?;
        *self.place.lock() = Some((Arc::clone(&stream), memory));
        self.waker.wake();
        // Only now does the client let go of its first connection.
        shm::confirm(&*stream)
    }

    /// The stream that carries the commands, once the client has chosen one.
    pub(super) fn settle(
        &self,
        first: Arc<dyn Stream>,
        on_this_machine: Option<OwnedFd>,
    ) -> io::Result<(Arc<dyn Stream>, Option<Memory>)> {
        if let Some(socket) = on_this_machine {
            drop(first);
            let (stream, memory) = take_up(socket)?;
            shm::confirm(&*stream)?;
            return Ok((stream, Some(memory)));
        }
        loop {
            // A connection that is lost already can be replaced by another one: the reading thread
            // notices it.
            let Ok(ready) = first.wait(Interest::READ, Some(&self.waker), Some(PEER_CHECK)) else {
                return Ok((first, None));
            };
            if let Some((stream, memory)) = self.place.lock().take() {
                return Ok((stream, Some(memory)));
            }
            if ready.read || ready.hangup {
                return Ok((first, None));
            }
            if ready == Readiness::default() && first.check_peer().is_err() {
                return Ok((first, None));
            }
        }
    }
}
