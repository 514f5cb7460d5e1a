//! The task of one session's worker: it reads the worker's messages, sends it messages, and ends
//! it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use outboard_wire::handshake::Refusal;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::{Phase, Table};
use crate::closing::Foreign;
use crate::collectives::MOST_OF_A_SESSION;
use crate::dial::{Call, Callee, Turns};
use crate::files;
use crate::workers::{Ended, Worker};
use outboard_auth::sparing::STRANGERS;
use outboard_control::messages::{ToSupervisor, ToWorker};
use outboard_control::number::Number;
use outboard_control::trace::unix_now;

/// How long a worker may take to tell its client why the session ends, and to end after it has left
/// its supervisor.
const END_GRACE: Duration = Duration::from_secs(2);

/// The client's welcome, or why there was none.
pub(crate) type Welcomed = oneshot::Receiver<Result<(), Unwelcome>>;

/// Why a client was not welcomed.
#[derive(Debug)]
pub(crate) enum Unwelcome {
    /// The worker says so.
    Refused(Refusal),
    /// The worker's process has ended, in this way.
    Ended(String),
}

/// How to end a session.
pub(super) struct Stop {
    /// The sentence for the client; without it, the worker is killed at once.
    pub(super) sentence: Option<String>,
}

/// A message for a worker.
pub(super) struct Inbox {
    /// Further connections, and what they are.
    pub(super) further: mpsc::Receiver<(ToWorker, OwnedFd)>,
    pub(super) stop: mpsc::Receiver<Stop>,
    /// A message without a connection.
    pub(super) orders: mpsc::UnboundedReceiver<ToWorker>,
}

/// Relays between a worker and the supervisor until the worker has ended.
pub(super) async fn look_after(
    worker: Worker,
    session: u64,
    table: &Rc<Table>,
    inbox: Inbox,
    welcome: oneshot::Sender<Result<(), Unwelcome>>,
) {
    let (answers, mut answers_in) = mpsc::unbounded_channel();
    let (started, welcome) = (Instant::now(), Some(welcome));
    let connecting = Rc::new(Semaphore::new(MOST_OF_A_SESSION));
    let opening = Rc::new(Semaphore::new(files::MOST_OF_A_SESSION));
    let turns = Rc::new(Turns::default());
    let has_listener = false;
    let mut attendant = Attendant {
        worker,
        session,
        table,
        started,
        welcome,
        answers,
        connecting,
        opening,
        turns,
        has_listener,
    };
    let Inbox { mut further, mut stop, mut orders } = inbox;
    let (mut stopped, mut why, mut kill_at) = (false, None, None);
    loop {
        tokio::select! {
            said = attendant.worker.receive() => match said {
                Ok(Some((message, descriptor))) => attendant.hear(message, descriptor),
                // It has ended, or turns away.
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(session = %Number(session), %error, "a worker talks nonsense");
                    attendant.worker.kill();
                    break;
                }
            },
            Some(order) = orders.recv() => attendant.tell(&order),
            Some(answer) = answers_in.recv() => attendant.tell(&answer),
            Some((what, connection)) = further.recv() => {
                if let Err(error) = attendant.worker.deliver(&what, connection.as_fd()).await {
                    tracing::warn!(session = %Number(session), %error, "a connection did not reach its worker");
                }
            }
            Some(Stop { sentence }) = stop.recv() => {
                (stopped, why) = (true, sentence.clone());
                let told = sentence.map(|sentence| attendant.worker.send(&ToWorker::End { sentence }, None).is_ok());
                if told == Some(true) {
                    // To be told again does not make it longer.
                    kill_at.get_or_insert_with(|| tokio::time::Instant::now() + END_GRACE);
                } else {
                    attendant.worker.kill();
                }
            }
            () = at(kill_at) => {
                kill_at = None;
                attendant.worker.kill();
            }
        }
    }
    // A token of a session that has ended names nothing.
    table.shares.forget(session);
    table.outside.files.forget(session);
    table.outside.sockets.forget(session);
    attendant.end(stopped, why).await;
}

/// Comes at this time, if there is one.
async fn at(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The task of a worker.
pub(super) struct Attendant<'a> {
    worker: Worker,
    pub(super) session: u64,
    pub(super) table: &'a Rc<Table>,
    started: Instant,
    /// The task that waits for the client's welcome.
    welcome: Option<oneshot::Sender<Result<(), Unwelcome>>>,
    /// The way for answers that take their time.
    pub(super) answers: mpsc::UnboundedSender<ToWorker>,
    /// The room for connections of its collectives.
    pub(super) connecting: Rc<Semaphore>,
    /// The room for openings of files.
    pub(super) opening: Rc<Semaphore>,
    /// The room for connections to other servers.
    pub(super) turns: Rc<Turns>,
    /// Whether its system calls are judged.
    has_listener: bool,
}

impl Attendant<'_> {
    /// Acts on what the worker says.
    fn hear(&mut self, message: ToSupervisor, descriptor: Option<Foreign>) {
        let (session, table) = (self.session, self.table);
        let movable = matches!(message, ToSupervisor::DialMovable { .. });
        match message {
            ToSupervisor::Welcomed => self.welcomed(),
            ToSupervisor::Failed { code, sentence } => {
                self.answer(Err(Unwelcome::Refused(Refusal { code, sentence })));
            }
            // It was still getting ready when it was given its client.
            ToSupervisor::Ready { .. } => {}
            ToSupervisor::Spans { spans, dropped, last } => {
                table.spans(session, spans, dropped, last)
            }
            ToSupervisor::Share { request, token, kind, payload } => {
                let taken = table.shares.add(session, token, kind, payload, descriptor);
                self.reply(request, taken.then_some((&[], None)));
            }
            ToSupervisor::Unshare { token } => table.shares.remove(session, token),
            ToSupervisor::Find { request, token, kind } => {
                table.shares.find(token, kind, |found| self.reply(request, found));
            }
            ToSupervisor::Quiet { quiet } => table.lending.answered(session, quiet),
            ToSupervisor::Holds { device, bytes } => table.lending.holds(session, device, bytes),
            ToSupervisor::Wake => self.wake(),
            ToSupervisor::Room { request, device, bytes, failed } => {
                self.make_room(request, device, bytes, failed)
            }
            ToSupervisor::Scarce { request, device } => {
                let asked = table.want_memory(session, device);
                self.reply(request, asked.then_some((&[], None)));
            }
            ToSupervisor::Dial { request, address, session: called, ticket, link, secure }
            | ToSupervisor::DialMovable {
                request,
                address,
                session: called,
                ticket,
                link,
                secure,
            } => {
                let callee = Callee::Address(address);
                self.dial(request, Call { callee, session: called, ticket, link, secure, movable });
            }
            ToSupervisor::DialSocket { request, server, session: called, ticket, link } => {
                let callee = Callee::Neighbour(server);
                let secure = false;
                self.dial(request, Call { callee, session: called, ticket, link, secure, movable });
            }
            ToSupervisor::Socket { request, v6 } => self.make_socket(request, v6),
            ToSupervisor::Bind { request, address } => {
                self.bind_socket(request, descriptor.as_ref(), &address)
            }
            ToSupervisor::Connect { request, address } => {
                self.connect_socket(request, descriptor, address)
            }
            ToSupervisor::Listen { request, backlog } => {
                self.let_socket_listen(request, descriptor.as_ref(), backlog)
            }
            ToSupervisor::Calls => {
                // It has one filter, and so one listener.
                if let Some(listener) = descriptor.map(Foreign::into_inner)
                    && !std::mem::replace(&mut self.has_listener, true)
                {
                    table.outside.calls.answer_for(self.worker.id(), listener);
                }
            }
            ToSupervisor::Interface { request } => self.name_interface(request),
            ToSupervisor::OpenFile { request, reference, reads, writes } => {
                self.open_file(request, reference, reads, writes)
            }
            ToSupervisor::ProveFile { request, opened, proof } => {
                self.prove_file(request, opened, proof)
            }
            ToSupervisor::Orphan | ToSupervisor::Kept { .. } | ToSupervisor::Told => {
                if let Some(left_out) = STRANGERS.admits("out_of_turn") {
                    tracing::error!(session = %Number(session), left_out, "a worker says that its supervisor has gone");
                }
            }
            ToSupervisor::Gauges(_) => {
                if let Some(left_out) = STRANGERS.admits("out_of_turn") {
                    tracing::error!(session = %Number(session), left_out, "a worker with a client tells how the devices do");
                }
            }
            ToSupervisor::Unknown(number) => {
                tracing::debug!(session = %Number(session), number, "a worker of another release says what this one does not know");
            }
        }
    }

    fn welcomed(&mut self) {
        let ms = self.started.elapsed().as_millis() as u64;
        tracing::debug!(session = %Number(self.session), ms, "welcomed");
        if let Some(entry) = self.table.sessions.borrow().get(&self.session)
            && entry.phase.get() == Phase::Starting
        {
            entry.phase.set(Phase::Serving);
            entry.welcomed.set(Some(unix_now()));
        }
        self.answer(Ok(()));
    }

    fn answer(&mut self, result: Result<(), Unwelcome>) {
        if let Some(welcome) = self.welcome.take() {
            // The task that asked may have given up.
            let _ = welcome.send(result);
        }
    }

    /// Answers a request.
    pub(super) fn reply(&self, request: u64, found: Option<(&[u8], Option<BorrowedFd<'_>>)>) {
        let (payload, descriptor) =
            found.map_or((None, None), |(payload, fd)| (Some(payload.to_vec()), fd));
        if let Err(error) = self.worker.send(&ToWorker::Answer { request, payload }, descriptor)
            && let Some(left_out) = STRANGERS.admits("answer")
        {
            tracing::warn!(session = %Number(self.session), %error, left_out, "an answer did not reach its worker");
        }
    }

    fn tell(&self, message: &ToWorker) {
        if let Err(error) = self.worker.send(message, None)
            && let Some(left_out) = STRANGERS.admits("message")
        {
            tracing::warn!(session = %Number(self.session), %error, left_out, "a message did not reach its worker");
        }
    }

    /// Has the session's memory brought back.
    fn wake(&self) {
        let (session, table) = (self.session, Rc::clone(self.table));
        tokio::task::spawn_local(async move {
            if !table.lending.wake(session, &|other| table.idle(other)).await {
                table.stop(
                    session,
                    "ended, as it was suspended and its memory could not be brought back",
                );
            }
        });
    }

    /// Has others make room for the session, and answers when there is some or will be none.
    fn make_room(&self, request: u64, device: u32, bytes: u64, failed: bool) {
        let (session, table, answers) = (self.session, Rc::clone(self.table), self.answers.clone());
        tokio::task::spawn_local(async move {
            let idle = |other| table.idle(other);
            let granted = table.lending.room(session, device, bytes, failed, &idle).await;
            // The worker may have ended meanwhile.
            let _ = answers.send(ToWorker::Answer { request, payload: granted.then(Vec::new) });
        });
    }

    /// Waits for the worker's end, and notes it.
    async fn end(mut self, stopped: bool, why: Option<String>) {
        let (session, status) = (self.session, self.ended().await);
        let seconds = self.started.elapsed().as_secs_f64();
        match &status {
            Ok(status) if status.is_success() || stopped => {
                tracing::info!(session = %Number(session), seconds, "session ends")
            }
            Ok(status) => {
                tracing::warn!(session = %Number(session), seconds, %status, "session ends with its worker")
            }
            Err(error) => {
                tracing::error!(session = %Number(session), seconds, %error, "a worker cannot be waited for")
            }
        }
        self.table.note_end(session, why, status.as_ref().is_ok_and(Ended::is_success));
        let ended = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        self.answer(Err(Unwelcome::Ended(ended)));
    }

    /// How the worker has ended. Its end of the socket closes with its process; one that has closed
    /// it and lives is beyond orders.
    async fn ended(&mut self) -> io::Result<Ended> {
        if let Ok(ended) = timeout(END_GRACE, self.worker.wait()).await {
            return ended;
        }
        tracing::error!(session = %Number(self.session), "a worker has turned from its supervisor; it is killed");
        self.worker.kill();
        self.worker.wait().await
    }
}
