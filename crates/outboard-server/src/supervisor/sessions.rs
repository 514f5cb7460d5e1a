//! The table of sessions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use outboard_wire::handshake::{Refusal, RefusalCode};
use tokio::sync::{Notify, mpsc, oneshot};

use super::shares::Shares;
use super::workers::Worker;
use crate::board::Board;
use crate::control::{Start, ToSupervisor, ToWorker};
use crate::identity::Identity;

/// All sessions of a supervisor.
pub(super) struct Sessions {
    table: Rc<Table>,
}

struct Table {
    sessions: RefCell<HashMap<u64, Entry>>,
    /// What the workers write of their sessions, and what they map for it.
    board: Board,
    shared: OwnedFd,
    shares: Shares,
    /// Told whenever a session ends.
    ended: Notify,
}

struct Entry {
    key: u128,
    /// Who the client is, in its own words.
    client: String,
    /// Whose it is.
    #[allow(dead_code, reason = "for revoked tokens, and limits of an owner")]
    identity: Identity,
    /// Further connections on their way to the worker, and what they are.
    further: mpsc::Sender<(ToWorker, OwnedFd)>,
    stop: mpsc::Sender<()>,
}

/// The client's welcome, or why there was none.
pub(super) type Welcomed = oneshot::Receiver<Result<(), Unwelcome>>;

/// Why a client was not welcomed.
#[derive(Debug)]
pub(super) enum Unwelcome {
    /// The worker says so.
    Refused(Refusal),
    /// The worker's process has ended, in this way.
    Ended(String),
}

/// Connections that may be on their way to a worker.
const ON_THE_WAY: usize = outboard_wire::limits::MAX_LANES + 1;
/// How long workers have to end by themselves when the supervisor stops.
const STOP_GRACE: Duration = Duration::from_secs(2);

impl Sessions {
    /// None yet, and room for so many.
    pub(super) fn new(most: usize) -> io::Result<Sessions> {
        let (board, shared) = Board::create(most)?;
        let (sessions, shares) = (RefCell::default(), Shares::default());
        let table = Table { sessions, board, shared, shares, ended: Notify::new() };
        Ok(Sessions { table: Rc::new(table) })
    }

    pub(super) fn len(&self) -> usize {
        self.table.sessions.borrow().len()
    }

    /// Hands a client to a worker, and looks after the worker in a task of its own until it ends.
    pub(super) fn open(&self, worker: Worker, start: Start, connection: BorrowedFd<'_>) -> io::Result<Welcomed> {
        let (session, key, client) = (start.session, start.key, start.client.clone());
        let identity = start.identity.clone();
        let process = worker.id();
        worker.send(&ToWorker::Start(Box::new(start)), Some(connection))?;
        worker.send(&ToWorker::Board, Some(self.table.shared.as_fd()))?;
        let (further, further_in) = mpsc::channel(ON_THE_WAY);
        let (stop, stop_in) = mpsc::channel(1);
        let (welcome, welcomed) = oneshot::channel();
        self.table.sessions.borrow_mut().insert(session, Entry { key, client, identity, further, stop });
        let table = Rc::clone(&self.table);
        tokio::task::spawn_local(async move {
            look_after(worker, session, &table.shares, further_in, stop_in, welcome).await;
            table.sessions.borrow_mut().remove(&session);
            table.board.clear(process);
            table.ended.notify_waiters();
        });
        Ok(welcomed)
    }

    /// Hands one more connection to a session's worker, and says what it is.
    pub(super) fn add(
        &self,
        session: u64,
        key: u128,
        what: ToWorker,
        connection: BorrowedFd<'_>,
    ) -> Result<(), Refusal> {
        let sessions = self.table.sessions.borrow();
        // One answer for both, so that it does not tell which sessions exist.
        let entry = sessions.get(&session).filter(|entry| same(entry.key, key)).ok_or_else(|| Refusal {
            code: RefusalCode::NoSession,
            sentence: "the server has no such session, or it has another key".to_owned(),
        })?;
        let failed = |reason: String| Refusal {
            code: RefusalCode::Busy,
            sentence: format!("the connection cannot be handed to the session's worker: {reason}"),
        };
        let connection = connection.try_clone_to_owned().map_err(|error| failed(error.to_string()))?;
        entry.further.try_send((what, connection)).map_err(|error| failed(error.to_string()))
    }

    /// Ends a session's worker now.
    pub(super) fn kill(&self, session: u64) {
        if let Some(entry) = self.table.sessions.borrow().get(&session) {
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(());
        }
    }

    /// Waits until there is none.
    pub(super) async fn all_gone(&self) {
        loop {
            let ended = self.table.ended.notified();
            if self.len() == 0 {
                break;
            }
            ended.await;
        }
    }

    /// The clients of all sessions, for the log.
    pub(super) fn names(&self) -> Vec<String> {
        self.table.sessions.borrow().values().map(|entry| entry.client.clone()).collect()
    }

    /// Ends the sessions whose identity is no longer good; how many.
    #[allow(dead_code, reason = "for revoked tokens")]
    pub(super) fn end_those(&self, is_over: impl Fn(&Identity) -> bool) -> usize {
        let sessions = self.table.sessions.borrow();
        let over: Vec<_> = sessions.iter().filter(|(_, entry)| is_over(&entry.identity)).collect();
        for (session, entry) in &over {
            tracing::info!(session, owner = entry.identity.owner, token = entry.identity.token, "session is ended");
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(());
        }
        over.len()
    }

    /// Ends all workers and waits until they are gone.
    pub(super) async fn stop_all(&self) {
        let all: Vec<u64> = self.table.sessions.borrow().keys().copied().collect();
        for session in all {
            self.kill(session);
        }
        if tokio::time::timeout(STOP_GRACE, self.all_gone()).await.is_err() {
            tracing::warn!(sessions = self.len(), "some workers did not end in time");
        }
    }
}

/// Compares keys in a time that does not tell where they differ.
fn same(a: u128, b: u128) -> bool {
    std::hint::black_box(a ^ b) == 0
}

/// Answers a worker's request.
fn reply(worker: &Worker, session: u64, request: u64, found: Option<(&[u8], Option<BorrowedFd<'_>>)>) {
    let (payload, descriptor) = found.map_or((None, None), |(payload, fd)| (Some(payload.to_vec()), fd));
    if let Err(error) = worker.send(&ToWorker::Answer { request, payload }, descriptor) {
        tracing::warn!(session, %error, "an answer did not reach its worker");
    }
}

/// Relays between a worker and the supervisor until the worker has ended.
async fn look_after(
    mut worker: Worker,
    session: u64,
    shares: &Shares,
    mut further: mpsc::Receiver<(ToWorker, OwnedFd)>,
    mut stop: mpsc::Receiver<()>,
    welcome: oneshot::Sender<Result<(), Unwelcome>>,
) {
    let started = Instant::now();
    let mut welcome = Some(welcome);
    let mut stopped = false;
    let mut answer = |result: Result<(), Unwelcome>| {
        if let Some(welcome) = welcome.take() {
            // Whoever asked may have given up.
            let _ = welcome.send(result);
        }
    };
    // The worker's end of the socket closes with its process, so this ends when it does.
    loop {
        tokio::select! {
            said = worker.receive() => match said {
                Ok(Some((ToSupervisor::Welcomed, _))) => {
                    tracing::debug!(session, ms = started.elapsed().as_millis() as u64, "welcomed");
                    answer(Ok(()));
                }
                // It was still getting ready when it was given its client.
                Ok(Some((ToSupervisor::Ready { .. }, _))) => {}
                Ok(Some((ToSupervisor::Failed { code, sentence }, _))) => {
                    answer(Err(Unwelcome::Refused(Refusal { code, sentence })));
                }
                Ok(Some((ToSupervisor::Share { request, token, kind, payload }, descriptor))) => {
                    let taken = shares.add(session, token, kind, payload, descriptor);
                    reply(&worker, session, request, taken.then_some((&[], None)));
                }
                Ok(Some((ToSupervisor::Unshare { token }, _))) => shares.remove(session, token),
                Ok(Some((ToSupervisor::Find { request, token, kind }, _))) => {
                    shares.find(token, kind, |found| reply(&worker, session, request, found));
                }
                Ok(None) => break,
                // It was killed with messages unread.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => {
                    tracing::error!(session, %error, "a worker talks nonsense");
                    worker.kill();
                    break;
                }
            },
            Some((what, connection)) = further.recv() => {
                if let Err(error) = worker.send(&what, Some(connection.as_fd())) {
                    tracing::warn!(session, %error, "a connection did not reach its worker");
                }
            }
            Some(()) = stop.recv() => {
                stopped = true;
                worker.kill();
            }
        }
    }
    // A token of a session that has ended names nothing.
    shares.forget(session);
    let status = worker.wait().await;
    let seconds = started.elapsed().as_secs_f64();
    match &status {
        Ok(status) if status.success() || stopped => tracing::info!(session, seconds, "session ends"),
        Ok(status) => tracing::warn!(session, seconds, %status, "session ends with its worker"),
        Err(error) => tracing::error!(session, seconds, %error, "a worker cannot be waited for"),
    }
    let ended = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    answer(Err(Unwelcome::Ended(ended)));
}
