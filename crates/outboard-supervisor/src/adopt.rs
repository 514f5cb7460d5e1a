//! Adoption of sessions: those of an earlier supervisor, whose workers have continued without it.
//!
//! Their workers wait at sockets that [`Records`] lists. Each worker returns what it was given to
//! keep and what its session shares. The owner and the limits of its session come from the earlier
//! supervisor's records, never from the worker.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::records::{Record, Records};
use super::sessions::{Heritage, Sessions};
use super::shares::Descriptors;
use super::workers::Worker;
use super::{Config, ServeError, Supervisor, sharing, traces};
use outboard_control::board::Board;
use outboard_control::messages::{ToSupervisor, kept};
use outboard_control::number::Number;

/// How long a worker may take to return what it kept, before the server accepts clients without it.
/// It is asked again later.
const PATIENCE: Duration = Duration::from_secs(3);
/// When workers that have not answered are asked again.
const AGAIN: Duration = Duration::from_secs(5);
/// Things that a session shares, at most; see `shares`.
const MOST_SHARED: usize = 1 << 16;
/// Descriptors that a worker is given to keep, at most.
const MOST_KEPT: usize = 16;

/// Devices of which a session may hold memory, at most.
const MOST_DEVICES: usize = 1 << 10;

/// A session that was adopted.
pub(super) struct Orphan {
    pub(super) session: u64,
    pub(super) record: Record,
    pub(super) worker: Worker,
    /// Descriptors, by what they are.
    pub(super) kept: Vec<(u8, OwnedFd)>,
    pub(super) shared: Vec<Shared>,
    /// Bytes of devices' memory, where memory is lent.
    pub(super) held: HashMap<u32, u64>,
    /// Whether its driver is suspended, or may be.
    pub(super) suspended: bool,
}

/// Something that a session shares with others.
pub(super) struct Shared {
    pub(super) token: u128,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
    pub(super) descriptor: Option<OwnedFd>,
}

impl Orphan {
    /// Takes what was kept under a tag.
    pub(super) fn take_kept(&mut self, tag: u8) -> Option<OwnedFd> {
        let found = self.kept.iter().position(|(kept, _)| *kept == tag)?;
        Some(self.kept.swap_remove(found).1)
    }
}

/// The table of sessions, with those that an earlier server has left; and how many more there are
/// whose workers have not answered yet.
pub(super) async fn sessions(
    config: &Config,
    address: SocketAddr,
    queue: &sharing::Queue,
    traces: &Rc<traces::Traces>,
    shared: Descriptors,
) -> Result<(Sessions, usize), ServeError> {
    let standing = &config.standing;
    let records = Records::open(&standing.records, address)
        .map_err(|error| ServeError::Records { folder: standing.records.clone(), error })?
        .map(Rc::new);
    let (mut orphans, mut late) = (Vec::new(), 0);
    if let Some(records) = &records {
        records.sweep();
        (orphans, late) = collect(records, |_| false).await;
    }
    let layout = Board::layout(config.max_sessions);
    let same = orphans.iter_mut().filter(|orphan| orphan.record.board == layout);
    let board = same.filter_map(|orphan| orphan.take_kept(kept::BOARD)).next();
    let sessions = {
        let lending = sharing::Lending::new(&config.sharing);
        Sessions::new(
            config.max_sessions,
            Heritage { records, outlive: standing.outlive, board, shared },
            Rc::clone(traces),
            lending,
        )?
    };
    let workers: Vec<u32> = orphans.iter().map(|orphan| orphan.worker.id()).collect();
    sessions.adopt_all(orphans, queue);
    if late == 0 {
        sessions.tidy(&workers);
    }
    Ok((sessions, late))
}

/// All sessions that are noted, are not `known`, and whose workers answer; and how many others
/// there are whose workers may answer later.
pub(super) async fn collect(
    records: &Rc<Records>,
    known: impl Fn(u64) -> bool,
) -> (Vec<Orphan>, usize) {
    let mut asked = JoinSet::new();
    for (session, record) in records.all().into_iter().filter(|(session, _)| !known(*session)) {
        let records = Rc::clone(records);
        asked.spawn_local(async move {
            match timeout(PATIENCE, ask(&records, session, record)).await {
                Ok(Ok(orphan)) => Ok(orphan),
                Ok(Err(error)) => Err((session, error)),
                Err(_) => Err((session, io::ErrorKind::TimedOut.into())),
            }
        });
    }
    let (mut orphans, mut late) = (Vec::new(), 0);
    while let Some(outcome) = asked.join_next().await {
        match outcome {
            Ok(Ok(orphan)) => orphans.push(orphan),
            Ok(Err((session, error))) => match error.kind() {
                io::ErrorKind::ConnectionRefused
                | io::ErrorKind::NotFound
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::UnexpectedEof => {
                    tracing::info!(session = %Number(session), "a session of an earlier server has ended");
                    records.remove(session);
                }
                _ => {
                    tracing::warn!(session = %Number(session), %error, "the worker of an earlier server's session does not answer; it is asked again");
                    late += 1;
                }
            },
            Err(error) => tracing::error!(%error, "a session of an earlier server is lost"),
        }
    }
    (orphans, late)
}

/// Has a worker return what it kept.
async fn ask(records: &Records, session: u64, record: Record) -> io::Result<Orphan> {
    // Whoever answers was alive before, and so was it when its process was opened: the number means
    // the same process.
    let worker = Worker::adopt(record.worker, records.connect(session)?)?;
    let (kept, shared, held) = (Vec::new(), Vec::new(), HashMap::new());
    let mut orphan = Orphan { session, record, worker, kept, shared, held, suspended: false };
    let unexpected = || io::Error::new(io::ErrorKind::InvalidData, "it says what it should not");
    match orphan.worker.receive().await? {
        Some((ToSupervisor::Orphan, _)) => {}
        Some(_) => return Err(unexpected()),
        None => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    loop {
        match orphan.worker.receive().await? {
            Some((ToSupervisor::Kept { tag }, Some(descriptor)))
                if orphan.kept.len() < MOST_KEPT =>
            {
                orphan.kept.push((tag, descriptor));
            }
            Some((ToSupervisor::Share { token, kind, payload, .. }, descriptor))
                if orphan.shared.len() < MOST_SHARED =>
            {
                orphan.shared.push(Shared { token, kind, payload, descriptor });
            }
            Some((ToSupervisor::Holds { device, bytes }, _))
                if orphan.held.len() < MOST_DEVICES =>
            {
                orphan.held.insert(device, bytes);
            }
            Some((ToSupervisor::Quiet { quiet }, _)) => orphan.suspended = quiet,
            Some((ToSupervisor::Told, _)) => return Ok(orphan),
            Some((ToSupervisor::Unknown(_), _)) => {}
            Some(_) => return Err(unexpected()),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Asks workers that have not answered again, until all have or are gone.
pub(super) async fn later(supervisor: Rc<Supervisor>) {
    let Some(records) = supervisor.sessions.records() else { return };
    loop {
        sleep(AGAIN).await;
        let (orphans, late) = collect(&records, |session| supervisor.sessions.has(session)).await;
        supervisor.sessions.adopt_all(orphans, &supervisor.queue);
        supervisor.unanswered.set(late);
        if late == 0 {
            break;
        }
    }
}
