//! The table of sessions.

mod attend;
mod collectives;
mod end;
mod entry;
mod files;
mod join;
mod links;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use self::attend::Inbox;
pub(super) use self::attend::{Unwelcome, Welcomed};
pub(super) use self::entry::Shown;
use self::entry::{Entry, Phase};
use super::about::{About, Kind};
use super::calls::Calls;
use super::orphan::{self, Orphan};
use super::outside::Outside;
use super::over::Over;
use super::pool::{Pool, Seated};
use super::records::{Record, Records};
use super::shares::{Descriptors, Shares};
use super::sharing::{Lending, Queue, Shared};
use super::totals::Totals;
use super::traces::{Traces, Trail};
use super::workers::Worker;
use super::{logs, workers_log};
use outboard_control::board::{self, Board};
use outboard_control::messages::{Start, ToWorker, kept};
use outboard_control::meter::{Meter, Reading};
use outboard_control::number::Number;
use outboard_control::trace::Span;
use outboard_transport::ivshmem::Allotted;
use outboard_transport::tls;
use outboard_wire::Code;

/// All sessions of a supervisor.
pub(super) struct Sessions {
    table: Rc<Table>,
}

struct Table {
    sessions: RefCell<HashMap<u64, Entry>>,
    /// What the workers write of their sessions, and what they map for it.
    board: Board,
    shared: board::Shared,
    /// The board's name.
    board_name: String,
    shares: Shares,
    /// Why those have ended that have.
    over: RefCell<Over>,
    /// Totals of ended sessions.
    totals: RefCell<Totals>,
    traces: Rc<Traces>,
    /// What the next server is to know, if it is to know anything, ...
    records: Option<Rc<Records>>,
    /// ... and for how long sessions wait for it.
    outlive: Option<Duration>,
    /// Told whenever a session ends.
    ended: Notify,
    lending: Shared,
    outside: Outside,
    log_format: logs::Format,
}

/// A new session for the table.
struct Noted {
    record: Record,
    about: About,
    meter: Meter,
    seat: Option<Seated>,
    phase: Phase,
}

/// Records of earlier servers, and records for later ones.
pub(super) struct Heritage {
    /// The records for the next server, if there are any.
    pub(super) records: Option<Rc<Records>>,
    /// For how long these wait for it.
    pub(super) outlive: Option<Duration>,
    /// The records of an earlier server.
    pub(super) board: Option<OwnedFd>,
    /// How many descriptors sessions may share.
    pub(super) shared: Descriptors,
    /// How their workers log.
    pub(super) log_format: logs::Format,
}

/// Connections that may be on their way to a worker.
const ON_THE_WAY: usize = outboard_wire::limits::MAX_LANES + 1;
/// How long orders may take to all workers: their tasks run in this thread.
const ORDERS_ARRIVE: Duration = Duration::from_millis(200);

impl Table {
    /// Spans have come from a worker.
    fn spans(&self, session: u64, spans: Vec<Span>, dropped: u64, last: bool) {
        if let Some(entry) = self.sessions.borrow().get(&session) {
            entry.dropped.set(entry.dropped.get().saturating_add(dropped));
            self.traces.take(&entry.trail, &entry.whose(session), spans, last);
        }
    }
}

impl Sessions {
    /// None yet, and room for so many.
    pub(super) fn new(
        most: usize,
        heritage: Heritage,
        traces: Rc<Traces>,
        lending: Lending,
        outside: Outside,
    ) -> io::Result<Sessions> {
        let Heritage { records, outlive, board, shared: most_shared, log_format } = heritage;
        let left = board.and_then(|board| {
            Board::take_over(board, most)
                .inspect_err(|error| tracing::warn!(%error, "there is a new board"))
                .ok()
        });
        let (board, shared) = left.map_or_else(|| Board::create(most), Ok)?;
        let (sessions, shares, over) =
            (RefCell::default(), Shares::new(most_shared), RefCell::default());
        let board_name = Board::name(shared.readable(), most)?;
        let (totals, ended) = (RefCell::default(), Notify::new());
        let lending = Rc::new(lending);
        let table = Table {
            sessions,
            board,
            board_name,
            shared,
            shares,
            over,
            totals,
            traces,
            records,
            outlive,
            ended,
            lending,
            outside,
            log_format,
        };
        Ok(Sessions { table: Rc::new(table) })
    }

    /// How many connections of an asker only ask, and how many of all.
    pub(super) fn questions_of(&self, asker: &str) -> (usize, usize) {
        let sessions = self.table.sessions.borrow();
        let ask = || sessions.values().filter(|entry| entry.about.kind != Kind::Session);
        (ask().filter(|entry| entry.about.asker == asker).count(), ask().count())
    }

    /// How many are sessions rather than clients that only send queries.
    pub(super) fn serving(&self) -> usize {
        self.table
            .sessions
            .borrow()
            .values()
            .filter(|entry| entry.about.kind == Kind::Session)
            .count()
    }

    /// Whether one is ending, so that its place is about to be free.
    pub(super) fn any_ends(&self) -> bool {
        self.table.sessions.borrow().values().any(Entry::is_ending)
    }

    pub(super) fn len(&self) -> usize {
        self.table.sessions.borrow().len()
    }

    pub(super) fn has(&self, session: u64) -> bool {
        self.table.sessions.borrow().contains_key(&session)
    }

    /// Where other servers reach this one, if its workers can be linked to theirs.
    pub(super) fn peers(&self) -> Option<Vec<String>> {
        self.table.outside.dialer.addresses()
    }

    /// Whether a process is the worker of a session.
    pub(super) fn has_worker(&self, process: u32) -> bool {
        self.table.sessions.borrow().values().any(|entry| entry.worker == process)
    }

    pub(super) fn records(&self) -> Option<Rc<Records>> {
        self.table.records.clone()
    }

    /// What judges the system calls of workers.
    pub(super) fn calls(&self) -> &Arc<Calls> {
        &self.table.outside.calls
    }

    /// The board, for a worker that only looks at it.
    pub(super) fn shared_board(&self) -> BorrowedFd<'_> {
        self.table.shared.readable()
    }

    /// Frees what workers that have ended since have left on the board.
    pub(super) fn tidy(&self, workers: &[u32]) {
        self.table.board.retain(workers);
    }

    /// Hands a client to a worker, with its part of a region if it has one, and looks after the
    /// worker in a task of its own until it ends.
    pub(super) fn open(
        &self,
        mut worker: Worker,
        start: Start,
        about: About,
        (connection, region): (BorrowedFd<'_>, Option<&Allotted>),
    ) -> io::Result<Welcomed> {
        let session = start.session;
        let mut record = Record::new(&start, &about, worker.id(), self.table.board_name.clone())?;
        let leased = about.lease.as_ref().filter(|_| about.kind == Kind::Session);
        let seat = leased.map(|held| held.sit()).transpose()?;
        record.seat = seat.as_ref().map(Seated::number);
        let meter = Meter::create()?;
        let index = self.table.board.seat(worker.id(), start.process);
        worker.send(&ToWorker::Start(Box::new(start)), Some(connection))?;
        worker.send(&ToWorker::Board, Some(self.table.shared.readable()))?;
        if let Some(index) = index {
            worker.send(&ToWorker::Page { index }, Some(self.table.shared.writable()))?;
        }
        let account = seat.as_ref().map(Seated::memory).transpose()?;
        if let Some((seat, memory)) = record.seat.zip(account.as_ref()) {
            worker.send(&ToWorker::Account { seat }, Some(memory.as_fd()))?;
        }
        if let Some(Allotted { file, offset, bytes }) = region {
            let region = ToWorker::Region { offset: *offset, bytes: *bytes };
            worker.send(&region, Some(file.as_fd()))?;
        }
        let log = worker.take_log();
        if about.kind != Kind::Probe {
            self.settle(&worker, session, &record, (&meter, account.as_ref(), log.as_ref()));
        }
        // The last, after which the worker may welcome its client: from then on the session
        // outlives this process.
        worker.send(&ToWorker::Meter, Some(meter.memory()))?;
        let (welcome, welcomed) = oneshot::channel();
        self.attend(
            worker,
            session,
            Noted { record, about, meter, seat, phase: Phase::Starting },
            welcome,
        );
        Ok(welcomed)
    }

    /// Goes on with sessions of an earlier supervisor.
    pub(super) fn adopt_all(&self, orphans: Vec<Orphan>, queue: &Queue, pool: Option<&Rc<Pool>>) {
        for orphan in orphans {
            let session = orphan.session;
            if let Err(error) = self.adopt(orphan, queue, pool) {
                tracing::error!(session = %Number(session), %error, "a session of an earlier server cannot be gone on with");
            }
        }
    }

    fn adopt(&self, mut orphan: Orphan, queue: &Queue, pool: Option<&Rc<Pool>>) -> io::Result<()> {
        let left = orphan.take_kept(kept::METER).filter(|_| orphan.record.meter == Meter::layout());
        let left = left.and_then(|memory| {
            Meter::take_over(memory)
                .inspect_err(|error| tracing::warn!(%error, "a session is no longer counted"))
                .ok()
        });
        let meter = left.map_or_else(Meter::create, Ok)?;
        let account = orphan.take_kept(kept::ACCOUNT);
        // One of a release before this one writes to the log itself.
        if let Some(log) = orphan.take_kept(kept::LOG)
            && let Err(error) = workers_log::relay(&log, orphan.worker.id(), self.table.log_format)
        {
            tracing::warn!(session = %Number(orphan.session), %error, "a worker logs no longer");
        }
        let Orphan { session, record, worker, shared, held, suspended, .. } = orphan;
        for orphan::Shared { token, kind, payload, descriptor } in shared {
            if !self.table.shares.add(session, token, kind, payload, descriptor) {
                tracing::warn!(session = %Number(session), "there is no room for something that the session shares: others cannot open it any more");
            }
        }
        let (client, owner) = (&record.client, &record.identity.owner);
        tracing::info!(session = %Number(session), client, owner, worker = worker.id(), "session goes on");
        // Its client has long been welcomed.
        let (welcome, _) = oneshot::channel();
        let place = record.place.clone().map(|request| queue.take_over(request, record.began()));
        let lease = record.lease.map(|number| pool.and_then(|pool| pool.take_over(number)));
        // Nobody would end it with its lease.
        let lost_lease = matches!(lease, Some(None));
        let about = record.about(place, lease.flatten());
        let seated = about.lease.as_ref().zip(record.seat).zip(account);
        let seat = seated.and_then(|((held, seat), account)| {
            held.sit_again(seat, account)
                .inspect_err(|error| tracing::warn!(session = %Number(session), %error, "a session's memory is not counted with its lease"))
                .ok()
        });
        self.attend(
            worker,
            session,
            Noted { record, about, meter, seat, phase: Phase::Serving },
            welcome,
        );
        self.table.lending.take_over(session, held, suspended);
        if lost_lease {
            let sentence = "ended, as the server does not know its lease any more";
            self.table.stop(session, &Code::LeaseOver.end(sentence));
        }
        Ok(())
    }

    /// Has a worker outlive this supervisor, should it have to.
    fn settle(
        &self,
        worker: &Worker,
        session: u64,
        record: &Record,
        (meter, account, log): (&Meter, Option<&OwnedFd>, Option<&OwnedFd>),
    ) {
        let Some(records) = &self.table.records else { return };
        let outlive = self.table.outlive.map(|time| time.as_secs());
        let settled = records.add(session, record).and_then(|home| {
            let seal = record.secret().map(|secret| tls::seal(secret, session));
            let seal = seal.ok_or(io::ErrorKind::InvalidData)?;
            worker.send(&ToWorker::Heir { seal }, None)?;
            worker.send(&ToWorker::Home { outlive }, Some(home.as_fd()))?;
            worker
                .send(&ToWorker::Keep { tag: kept::BOARD }, Some(self.table.shared.readable()))?;
            if let Some(account) = account {
                worker.send(&ToWorker::Keep { tag: kept::ACCOUNT }, Some(account.as_fd()))?;
            }
            if let Some(log) = log {
                worker.send(&ToWorker::Keep { tag: kept::LOG }, Some(log.as_fd()))?;
            }
            worker.send(&ToWorker::Keep { tag: kept::METER }, Some(meter.memory()))
        });
        if let Err(error) = settled {
            tracing::warn!(session = %Number(session), %error, "the session cannot be noted for the next server; it ends with this one");
        }
    }

    /// Has sessions believe a next supervisor that proves nothing, and gives this time to reach
    /// their workers.
    pub(super) async fn unseal(&self) {
        for entry in self.table.sessions.borrow().values() {
            // It may be ending.
            let _ = entry.orders.send(ToWorker::Unseal);
        }
        tokio::time::sleep(ORDERS_ARRIVE).await;
    }

    /// Undoes this.
    pub(super) fn seal_again(&self) {
        let Some(records) = &self.table.records else { return };
        let sessions = self.table.sessions.borrow();
        for (session, record) in records.all() {
            if let (Some(entry), Some(secret)) = (sessions.get(&session), record.secret()) {
                let _ = entry.orders.send(ToWorker::Inherit { secret });
            }
        }
    }

    /// Puts a session into the table, and looks after its worker in a task of its own until it
    /// ends.
    fn attend(
        &self,
        worker: Worker,
        session: u64,
        noted: Noted,
        welcome: oneshot::Sender<Result<(), Unwelcome>>,
    ) {
        let Noted { record, about, meter, seat, phase } = noted;
        let (further, further_in) = mpsc::channel(ON_THE_WAY);
        let (stop, stop_in) = mpsc::channel(1);
        let process = worker.id();
        let (orders, orders_in) = mpsc::unbounded_channel();
        self.table.lending.begin(session, process, orders.clone());
        let trail = Trail::new(session, about.parent);
        if self.table.traces.all() && about.kind == Kind::Session {
            // If it cannot be told now, it has ended.
            let _ = worker.send(&ToWorker::Trace { on: true, root: trail.root() }, None);
        }
        let entry = Entry {
            key: record.key().unwrap_or_default(),
            proofs: record.secure.then(HashSet::new),
            further,
            stop,
            orders,
            about,
            worker: process,
            since: record.since(),
            devices: record.devices,
            client: record.client,
            phase: Cell::new(phase),
            meter,
            _seat: seat,
            seen: Cell::new(Reading::default()),
            trail,
            welcomed: Cell::new(None),
            dropped: Cell::new(0),
        };
        self.table.sessions.borrow_mut().insert(session, entry);
        let table = Rc::clone(&self.table);
        tokio::task::spawn_local(async move {
            let inbox = Inbox { further: further_in, stop: stop_in, orders: orders_in };
            attend::look_after(worker, session, &table, inbox, welcome).await;
            table.lending.end(session);
            let ended = table.sessions.borrow_mut().remove(&session);
            if let Some(entry) = ended {
                table.traces.close(&entry.trail, &entry.whose(session), entry.dropped.get(), true);
                table.traces.over(session);
                table.totals.borrow_mut().add_ended(&entry.about.identity.owner, &entry.read());
            }
            table.board.clear(process);
            if let Some(records) = &table.records {
                records.remove(session);
            }
            table.ended.notify_waiters();
        });
    }

    /// The clients of all sessions, for the log.
    pub(super) fn names(&self) -> Vec<String> {
        self.table.sessions.borrow().values().map(|entry| entry.client.clone()).collect()
    }

    /// Waits until no session is being suspended or resumed, and holds that up as long as the
    /// result lives.
    pub(super) async fn hold_lending(&self) -> impl Drop + '_ {
        self.table.lending.hold().await
    }

    /// Totals of all sessions by owner, ended ones included.
    pub(super) fn totals(&self) -> Totals {
        let sessions = self.table.sessions.borrow();
        let mut ended = self.table.totals.borrow_mut();
        for entry in sessions.values() {
            ended.name(&entry.about.identity.owner);
        }
        let mut totals = ended.clone();
        for entry in sessions.values() {
            totals.add(&entry.about.identity.owner, &entry.read());
        }
        totals
    }

    /// The traces of sessions.
    pub(super) fn traces(&self) -> &Traces {
        &self.table.traces
    }

    /// Has a session's worker make spans, or no more.
    pub(super) fn trace(&self, session: u64, on: bool) {
        if let Some(entry) = self.table.sessions.borrow().get(&session) {
            // It may be ending.
            let _ = entry.orders.send(ToWorker::Trace { on, root: entry.trail.root() });
        }
    }

    /// The spans of a session that only the supervisor knows, for those who have asked for a trace.
    pub(super) fn close_trace(&self, session: u64) {
        if let Some(entry) = self.table.sessions.borrow().get(&session) {
            self.table.traces.close(
                &entry.trail,
                &entry.whose(session),
                entry.dropped.get(),
                false,
            );
        }
    }

    /// Looks at all sessions, in no order.
    pub(super) fn each(&self, mut look: impl FnMut(Shown<'_>)) {
        self.table
            .sessions
            .borrow()
            .iter()
            .for_each(|(session, entry)| look(entry.shown(*session)));
    }
}

impl Table {
    /// Has the clients of other sessions that have memory on a device give back what they only
    /// keep; whether there are any.
    fn want_memory(&self, session: u64, device: u32) -> bool {
        let holds =
            |shown: &board::Session| shown.held.get(device as usize).is_some_and(|held| *held > 0);
        let workers: Vec<u32> =
            self.board.sessions().iter().filter(|shown| holds(shown)).map(|s| s.worker).collect();
        let mut any = false;
        for (other, entry) in self.sessions.borrow().iter() {
            if *other != session && workers.contains(&entry.worker) {
                // It may be ending.
                any |= entry.orders.send(ToWorker::Wanted).is_ok();
            }
        }
        any
    }

    /// How long nothing has been heard of a session's client.
    fn idle(&self, session: u64) -> Option<Duration> {
        self.sessions.borrow().get(&session).map(|entry| entry.read().idle())
    }
}
