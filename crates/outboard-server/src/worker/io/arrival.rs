//! What a worker does before it has a client: waits for one, and gets ready meanwhile if it is told to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use outboard_wire::handshake::Refusal;

use super::{Build, Start};
use crate::control::{self, LONGEST, ToSupervisor, ToWorker};

/// A client, and what was prepared for it or why nothing could be.
pub(super) struct Arrival<P> {
    pub(super) prepared: Result<P, Refusal>,
    pub(super) start: Start,
    pub(super) connection: OwnedFd,
}

/// Waits for the client; `None` if none will come.
pub(super) fn wait<B: Build>(build: B, control: &OwnedFd) -> io::Result<Option<Arrival<B::Prepared>>> {
    let warm = match control::receive(control.as_fd())? {
        Some((ToWorker::Warm(warm), _)) => warm,
        first => {
            let client = client(control, first)?;
            return Ok(client.map(|(start, connection)| {
                let prepared = match &start.platform {
                    Some(platform) => build.describe(platform),
                    None => build.prepare(None),
                };
                Arrival { prepared, start, connection }
            }));
        }
    };
    if is_orphan_of(warm.supervisor) {
        return Ok(None);
    }
    match build.prepare(Some(&warm)) {
        Ok(prepared) => {
            let snapshot = B::snapshot(&prepared);
            // Without it, the supervisor has a worker of its own tell whoever asks.
            let snapshot = if snapshot.len() < LONGEST / 2 { snapshot } else { Vec::new() };
            control::send(control.as_fd(), &ToSupervisor::Ready { snapshot }, None)?;
            let client = client(control, control::receive(control.as_fd())?)?;
            Ok(client.map(|(start, connection)| Arrival { prepared: Ok(prepared), start, connection }))
        }
        Err(Refusal { code, sentence }) => {
            control::send(control.as_fd(), &ToSupervisor::Failed { code, sentence: sentence.clone() }, None)?;
            // A client may have been handed over meanwhile; what it is told is the same.
            let client = client(control, control::receive(control.as_fd())?)?;
            let prepared = Err(Refusal { code, sentence });
            Ok(client.map(|(start, connection)| Arrival { prepared, start, connection }))
        }
    }
}

/// The client that `first` hands over.
fn client(control: &OwnedFd, first: Option<(ToWorker, Option<OwnedFd>)>) -> io::Result<Option<(Start, OwnedFd)>> {
    let (start, connection) = match first {
        Some((ToWorker::Start(start), Some(connection))) => (*start, connection),
        Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "the first message starts no session")),
        None => return Ok(None),
    };
    if is_orphan_of(start.supervisor) {
        // It died before its death could be watched.
        return Ok(None);
    }
    match control::receive(control.as_fd())? {
        Some((ToWorker::Board, Some(memory))) => crate::board::join(memory.as_fd(), start.process)?,
        Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "the second message brings no board")),
        None => return Ok(None),
    }
    match control::receive(control.as_fd())? {
        Some((ToWorker::Meter, Some(memory))) => crate::meter::join(memory.as_fd())?,
        Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidData, "the third message brings no meter")),
        None => return Ok(None),
    }
    Ok(Some((start, connection)))
}

fn is_orphan_of(supervisor: u32) -> bool {
    std::os::unix::process::parent_id() != supervisor
}
