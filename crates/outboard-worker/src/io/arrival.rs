//! A worker without a client: it waits for one, and prepares meanwhile if the supervisor asks for
//! that.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use outboard_wire::handshake::Refusal;

use super::handler::Build;
use super::home::Home;
use super::region::Region;
use outboard_control::board::{self, Board};
use outboard_control::messages::{self, LONGEST, Start, ToSupervisor, ToWorker};

/// A client, and what was prepared for it or why nothing could be.
pub(super) struct Arrival<P> {
    pub(super) prepared: Result<P, Refusal>,
    pub(super) start: Start,
    pub(super) connection: OwnedFd,
    pub(super) home: Home,
    /// The session's part of a region, if it has one.
    pub(super) region: Option<Region>,
}

/// The supervisor's first message, with a descriptor.
pub(super) type First = Option<(ToWorker, Option<OwnedFd>)>;

/// Waits for the client; `None` if none will come.
pub(super) fn wait<B: Build>(
    build: B,
    control: &OwnedFd,
    first: First,
) -> io::Result<Option<Arrival<B::Prepared>>> {
    let warm = match first {
        Some((ToWorker::Warm(warm), _)) => warm,
        first => {
            let client = client(control, first)?;
            return Ok(client.map(|client| {
                let prepared = match &client.start.platform {
                    Some(platform) => build.describe(platform),
                    None => build.prepare(None, client.start.window),
                };
                client.with(prepared)
            }));
        }
    };
    if is_orphan_of(warm.supervisor) {
        return Ok(None);
    }
    match build.prepare(Some(&warm), Some(warm.window)) {
        Ok(prepared) => {
            let snapshot = B::snapshot(&prepared);
            // Without it, the supervisor starts another worker for queries.
            let snapshot = if snapshot.len() < LONGEST / 2 { snapshot } else { Vec::new() };
            let contexts = B::contexts(&prepared);
            let window = B::window(&prepared);
            messages::send(
                control.as_fd(),
                &ToSupervisor::Ready { snapshot, contexts, window },
                None,
            )?;
            let client = client(control, messages::receive(control.as_fd())?)?;
            Ok(client.map(|client| client.with(Ok(prepared))))
        }
        Err(Refusal { code, sentence }) => {
            messages::send(
                control.as_fd(),
                &ToSupervisor::Failed { code, sentence: sentence.clone() },
                None,
            )?;
            // A client may have been handed over meanwhile; what it is told is the same.
            let client = client(control, messages::receive(control.as_fd())?)?;
            Ok(client.map(|client| client.with(Err(Refusal { code, sentence }))))
        }
    }
}

/// A client, and all that the supervisor gives for it.
struct Client {
    start: Start,
    connection: OwnedFd,
    home: Home,
    region: Option<Region>,
}

impl Client {
    fn with<P>(self, prepared: Result<P, Refusal>) -> Arrival<P> {
        let Client { start, connection, home, region } = self;
        Arrival { prepared, start, connection, home, region }
    }
}

/// The client that `first` hands over. Once all is there, its session can outlive the supervisor.
fn client(control: &OwnedFd, first: First) -> io::Result<Option<Client>> {
    let (start, connection) = match first {
        Some((ToWorker::Start(start), Some(connection))) => (*start, connection),
        Some(_) => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the first message starts no session",
            ));
        }
        None => return Ok(None),
    };
    if is_orphan_of(start.supervisor) {
        // It died before its death could be watched.
        return Ok(None);
    }
    let mut home = Home::new(control.as_fd(), start.session);
    let (mut region, mut board) = (None, None);
    loop {
        match messages::receive(control.as_fd())? {
            Some((ToWorker::Board, Some(memory))) => board = Some(Board::attach(memory.as_fd())?),
            Some((ToWorker::Page { index }, Some(memory))) => {
                if let Some(board) = &mut board {
                    board.enter(memory.as_fd(), index)?;
                }
            }
            Some((ToWorker::Home { outlive }, Some(listener))) => home.settle(listener, outlive),
            Some((ToWorker::Heir { seal }, _)) => home.seal(seal),
            Some((ToWorker::Keep { tag }, Some(descriptor))) => home.keep(tag, descriptor),
            Some((ToWorker::Account { seat }, Some(memory))) => {
                outboard_control::account::join(memory.as_fd(), seat)?
            }
            Some((ToWorker::Region { offset, bytes }, Some(file))) => {
                region = Some(Region::map(file, offset, bytes)?)
            }
            // The last.
            Some((ToWorker::Meter, Some(memory))) => {
                outboard_control::meter::join(memory.as_fd())?;
                board.into_iter().for_each(board::set);
                return Ok(Some(Client { start, connection, home, region }));
            }
            Some(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "this belongs to no session's start",
                ));
            }
            None => return Ok(None),
        }
    }
}

pub(super) fn is_orphan_of(supervisor: u32) -> bool {
    std::os::unix::process::parent_id() != supervisor
}
