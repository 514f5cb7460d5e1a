//! Sessions that an earlier supervisor has left, as their workers tell.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use outboard_control::messages::{self, ToSupervisor, ToWorker};
use outboard_control::number::Number;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::records::{Record, Records};
use super::workers::Worker;
use crate::closing::Foreign;

/// How long a worker may take to return what it kept, before the server accepts clients without it.
/// It is asked again later.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
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
    pub(super) descriptor: Option<Foreign>,
}

impl Orphan {
    /// Takes what was kept under a tag.
    pub(super) fn take_kept(&mut self, tag: u8) -> Option<OwnedFd> {
        let found = self.kept.iter().position(|(kept, _)| *kept == tag)?;
        Some(self.kept.swap_remove(found).1)
    }
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
            match timeout(ANSWERS_WITHIN, ask(&records, session, record)).await {
                Ok(Ok(orphan)) => Ok(orphan),
                // A worker that others keep busy may turn anybody away. One that has ended listens
                // no more.
                Ok(Err(error)) if messages::has_gone(&error) || is_end(&error) => {
                    Err((session, records.connect(session).err().unwrap_or(error)))
                }
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
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
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

fn is_end(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::UnexpectedEof
}

/// Has a worker return what it kept.
async fn ask(records: &Records, session: u64, record: Record) -> io::Result<Orphan> {
    // Whoever answers was alive before, and so was it when its process was opened: the number means
    // the same process.
    let worker = Worker::adopt(record.worker, records.connect(session)?)?;
    if let Some(secret) = record.secret() {
        worker.send(&ToWorker::Inherit { secret }, None)?;
    }
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
                orphan.kept.push((tag, descriptor.into_inner()));
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
