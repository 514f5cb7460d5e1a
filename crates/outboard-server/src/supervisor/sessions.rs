//! The table of sessions.

mod attend;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use outboard_transport::tls;
use outboard_wire::handshake::auth::Proof;
use outboard_wire::handshake::{Refusal, RefusalCode, TraceParent};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use tokio::sync::{Notify, mpsc, oneshot};

use self::attend::{Inbox, Stop};
pub(super) use self::attend::{Unwelcome, Welcomed};
use super::adopt::{self, Orphan};
use super::over::{Over, no_session};
use super::records::{Record, Records};
use super::shares::Shares;
use super::sharing::{Lending, Place, Queue, Shared};
use super::totals::Totals;
use super::traces::{Traces, Trail, Whose};
use super::until;
use super::workers::Worker;
use crate::board::Board;
use crate::control::{Start, ToWorker, tags};
use crate::identity::Identity;
use crate::meter::{Meter, Reading};
use crate::trace::Span;

/// All sessions of a supervisor.
pub(super) struct Sessions {
    table: Rc<Table>,
}

struct Table {
    sessions: RefCell<HashMap<u64, Entry>>,
    /// What the workers write of their sessions, and what they map for it.
    board: Board,
    shared: OwnedFd,
    layout: String,
    shares: Shares,
    /// Why those have ended that have.
    over: RefCell<Over>,
    /// What those have done that have ended.
    totals: RefCell<Totals>,
    traces: Rc<Traces>,
    /// What the next server is to know, if it is to know anything, ...
    records: Option<Rc<Records>>,
    /// ... and for how long sessions wait for it.
    outlive: Option<Duration>,
    /// Told whenever a session ends.
    ended: Notify,
    lending: Shared,
}

struct Entry {
    key: u128,
    /// Who the client is, in its own words.
    client: String,
    /// What proofs of the key were drawn with, if its connections are encrypted.
    proofs: Option<HashSet<u128>>,
    /// Further connections on their way to the worker, and what they are.
    further: mpsc::Sender<(ToWorker, OwnedFd)>,
    stop: mpsc::Sender<Stop>,
    /// What the worker is told without a connection.
    orders: mpsc::UnboundedSender<ToWorker>,
    about: About,
    worker: u32,
    devices: Vec<u32>,
    since: Instant,
    /// What the supervisor knows of how it stands; the meter has what the worker knows.
    phase: Cell<Phase>,
    meter: Meter,
    /// What the meter has shown so far: it counts upwards only.
    seen: Cell<Reading>,
    /// Where it is in its trace.
    trail: Trail,
    /// When the client had been welcomed, in nanoseconds since 1970.
    welcomed: Cell<Option<u64>>,
    /// Spans that were lost.
    dropped: Cell<u64>,
}

/// What the supervisor knows of a session besides what its worker is told.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) identity: Identity,
    /// Who it is to others.
    pub(super) holder: String,
    /// Where the client is, for people.
    pub(super) peer: String,
    pub(super) kind: Kind,
    /// Its place among those who were let in, free again once nobody has it.
    pub(super) place: Option<Rc<Place>>,
    /// The span of the client's that the session is part of.
    pub(super) parent: Option<TraceParent>,
}

/// What a connection with a worker of its own is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    #[default]
    Session,
    Management,
    Probe,
}

/// How far a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    Serving,
    Ending,
}

/// What there is to a session that comes into the table.
struct Noted {
    record: Record,
    about: About,
    meter: Meter,
    phase: Phase,
}

/// What earlier servers leave, and what is left to later ones.
pub(super) struct Heritage {
    /// By way of which the next server is told of the sessions, if it is.
    pub(super) records: Option<Rc<Records>>,
    /// For how long these wait for it.
    pub(super) outlive: Option<Duration>,
    /// What an earlier server has left.
    pub(super) board: Option<OwnedFd>,
}

/// A session as it stands, to be shown.
pub(super) struct Shown<'a> {
    pub(super) session: u64,
    pub(super) about: &'a About,
    pub(super) worker: u32,
    pub(super) devices: &'a [u32],
    pub(super) client: &'a str,
    pub(super) age: Duration,
    pub(super) state: &'static str,
    pub(super) reading: Reading,
}

impl Entry {
    fn read(&self) -> Reading {
        let mut seen = self.seen.get();
        seen.raise_to(&self.meter.read());
        self.seen.set(seen);
        seen
    }

    fn whose(&self, session: u64) -> Whose<'_> {
        let (about, client, welcomed) = (&self.about, &*self.client, self.welcomed.get());
        Whose { session, about, client, worker: self.worker, transport: self.read().transport(), welcomed }
    }

    fn shown(&self, session: u64) -> Shown<'_> {
        let reading = self.read();
        let state = match self.phase.get() {
            Phase::Starting => "starting",
            Phase::Serving => reading.state(),
            Phase::Ending => "ending",
        };
        let (about, devices, client) = (&self.about, &*self.devices, &*self.client);
        Shown { session, about, worker: self.worker, devices, client, age: self.since.elapsed(), state, reading }
    }
}

/// Connections that may be on their way to a worker.
const ON_THE_WAY: usize = outboard_wire::limits::MAX_LANES + 1;
/// Connections that a session may have in its life.
const MOST_PROOFS: usize = 64 << 10;
/// How long workers have to end by themselves when the supervisor stops.
const STOP_GRACE: Duration = Duration::from_secs(4);

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
    pub(super) fn new(most: usize, heritage: Heritage, traces: Rc<Traces>, lending: Lending) -> io::Result<Sessions> {
        let Heritage { records, outlive, board } = heritage;
        let left = board.and_then(|board| {
            Board::take_over(board, most).inspect_err(|error| tracing::warn!(%error, "there is a new board")).ok()
        });
        let (board, shared) = left.map_or_else(|| Board::create(most), Ok)?;
        let (sessions, shares, over) = (RefCell::default(), Shares::default(), RefCell::default());
        let layout = Board::layout(most);
        let (totals, ended) = (RefCell::default(), Notify::new());
        let lending = Rc::new(lending);
        let table =
            Table { sessions, board, layout, shared, shares, over, totals, traces, records, outlive, ended, lending };
        Ok(Sessions { table: Rc::new(table) })
    }

    /// How many connections of a holder only ask.
    pub(super) fn questions_of(&self, holder: &str) -> usize {
        let sessions = self.table.sessions.borrow();
        let ask = |entry: &&Entry| entry.about.kind != Kind::Session && entry.about.holder == holder;
        sessions.values().filter(ask).count()
    }

    pub(super) fn len(&self) -> usize {
        self.table.sessions.borrow().len()
    }

    pub(super) fn has(&self, session: u64) -> bool {
        self.table.sessions.borrow().contains_key(&session)
    }

    pub(super) fn records(&self) -> Option<Rc<Records>> {
        self.table.records.clone()
    }

    /// Frees what workers that have ended since have left on the board.
    pub(super) fn tidy(&self, workers: &[u32]) {
        self.table.board.retain(workers);
    }

    /// Hands a client to a worker, and looks after the worker in a task of its own until it ends.
    pub(super) fn open(
        &self,
        worker: Worker,
        start: Start,
        about: About,
        connection: BorrowedFd<'_>,
    ) -> io::Result<Welcomed> {
        let session = start.session;
        let record = Record::new(&start, &about, worker.id(), self.table.layout.clone());
        let meter = Meter::create()?;
        worker.send(&ToWorker::Start(Box::new(start)), Some(connection))?;
        worker.send(&ToWorker::Board, Some(self.table.shared.as_fd()))?;
        if about.kind != Kind::Probe {
            self.settle(&worker, session, &record, &meter);
        }
        // The last, after which the worker may welcome its client: from then on the session outlives this process.
        worker.send(&ToWorker::Meter, Some(meter.memory()))?;
        let (welcome, welcomed) = oneshot::channel();
        self.attend(worker, session, Noted { record, about, meter, phase: Phase::Starting }, welcome);
        Ok(welcomed)
    }

    /// Goes on with sessions of an earlier supervisor.
    pub(super) fn adopt_all(&self, orphans: Vec<Orphan>, queue: &Queue) {
        for orphan in orphans {
            let session = orphan.session;
            if let Err(error) = self.adopt(orphan, queue) {
                tracing::error!(session, %error, "a session of an earlier server cannot be gone on with");
            }
        }
    }

    fn adopt(&self, mut orphan: Orphan, queue: &Queue) -> io::Result<()> {
        let left = orphan.take_kept(tags::METER).filter(|_| orphan.record.meter == Meter::layout());
        let left = left.and_then(|memory| {
            Meter::take_over(memory).inspect_err(|error| tracing::warn!(%error, "a session is no longer counted")).ok()
        });
        let meter = left.map_or_else(Meter::create, Ok)?;
        let Orphan { session, record, worker, shared, held, suspended, .. } = orphan;
        for adopt::Shared { token, kind, payload, descriptor } in shared {
            self.table.shares.add(session, token, kind, payload, descriptor);
        }
        let (client, owner) = (&record.client, &record.identity.owner);
        tracing::info!(session, client, owner, worker = worker.id(), "session goes on");
        // Its client has long been welcomed.
        let (welcome, _) = oneshot::channel();
        let place = record.place.clone().map(|request| queue.take_over(request));
        let about = record.about(place);
        self.attend(worker, session, Noted { record, about, meter, phase: Phase::Serving }, welcome);
        self.table.lending.take_over(session, held, suspended);
        Ok(())
    }

    /// Has a worker outlive this supervisor, should it have to.
    fn settle(&self, worker: &Worker, session: u64, record: &Record, meter: &Meter) {
        let Some(records) = &self.table.records else { return };
        let outlive = self.table.outlive.map(|time| time.as_secs());
        let settled = records.add(session, record).and_then(|home| {
            worker.send(&ToWorker::Home { outlive }, Some(home.as_fd()))?;
            worker.send(&ToWorker::Keep { tag: tags::BOARD }, Some(self.table.shared.as_fd()))?;
            worker.send(&ToWorker::Keep { tag: tags::METER }, Some(meter.memory()))
        });
        if let Err(error) = settled {
            tracing::warn!(session, %error, "the session cannot be noted for the next server; it ends with this one");
        }
    }

    /// Puts a session into the table, and looks after its worker in a task of its own until it ends.
    fn attend(&self, worker: Worker, session: u64, noted: Noted, welcome: oneshot::Sender<Result<(), Unwelcome>>) {
        let Noted { record, about, meter, phase } = noted;
        let (further, further_in) = mpsc::channel(ON_THE_WAY);
        let (stop, stop_in) = mpsc::channel(1);
        let process = worker.id();
        let (orders, orders_in) = mpsc::unbounded_channel();
        self.table.lending.begin(session, process, orders.clone());
        let trail = Trail::new(session, about.parent);
        if self.table.traces.all() && about.kind == Kind::Session {
            // If it cannot be told now, it has gone.
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

    /// Hands one more connection to a session's worker, and says what it is, if its owner may.
    pub(super) fn add(
        &self,
        session: u64,
        key: u128,
        what: ToWorker,
        connection: BorrowedFd<'_>,
        may: impl FnOnce(&Identity) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let sessions = self.table.sessions.borrow();
        let entry = sessions
            .get(&session)
            .filter(|entry| bool::from(entry.key.to_le_bytes().ct_eq(&key.to_le_bytes())))
            .ok_or_else(|| self.table.over.borrow().refusal(session, key))?;
        may(&entry.about.identity)?;
        let failed = |reason: String| Refusal {
            code: RefusalCode::Busy,
            sentence: format!("the connection cannot be handed to the session's worker: {reason}"),
        };
        let connection = connection.try_clone_to_owned().map_err(|error| failed(error.to_string()))?;
        entry.further.try_send((what, connection)).map_err(|error| failed(error.to_string()))
    }

    /// Whether the connections of a session are encrypted.
    pub(super) fn is_secure(&self, session: u64) -> bool {
        self.table.sessions.borrow().get(&session).is_some_and(|entry| entry.proofs.is_some())
    }

    /// The key of a session, if this proves that the client has it, by a keyed hash of `what`. Each proof is good for one connection.
    pub(super) fn proven(&self, session: u64, proof: &Proof, what: &[u8]) -> Result<u128, Refusal> {
        let mut sessions = self.table.sessions.borrow_mut();
        let entry = sessions.get_mut(&session);
        let entry = entry.filter(|entry| bool::from(tls::tag(entry.key, what).ct_eq(&proof.tag)));
        let entry = entry.ok_or_else(|| self.table.over.borrow().refusal_to(session, proof, what))?;
        let proofs = entry.proofs.as_mut().ok_or_else(no_session)?;
        let is_new = proofs.len() < MOST_PROOFS && proofs.insert(proof.nonce);
        if is_new { Ok(entry.key) } else { Err(no_session()) }
    }

    /// Ends a session's worker now.
    pub(super) fn kill(&self, session: u64) {
        if let Some(entry) = self.table.sessions.borrow().get(&session) {
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(Stop { sentence: None });
        }
    }

    /// Waits until there is none.
    pub(super) async fn all_gone(&self) {
        until(&self.table.ended, || self.len() == 0).await;
    }

    /// The clients of all sessions, for the log.
    pub(super) fn names(&self) -> Vec<String> {
        self.table.sessions.borrow().values().map(|entry| entry.client.clone()).collect()
    }

    /// Ends the sessions whose identity is no longer good; how many.
    pub(super) fn end_those(&self, is_over: impl Fn(&Identity) -> bool) -> usize {
        self.end("ended, as its token was revoked", |_, about| is_over(&about.identity)).len()
    }

    /// Ends sessions, telling their clients why. Which ones is for `wanted` to say.
    pub(super) fn end(&self, sentence: &str, wanted: impl Fn(u64, &About) -> bool) -> Vec<u64> {
        let sessions = self.table.sessions.borrow();
        let ended = sessions.iter().filter(|(session, entry)| wanted(**session, &entry.about));
        let stop = |(session, entry): (&u64, &Entry)| {
            entry.phase.set(Phase::Ending);
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(Stop { sentence: Some(sentence.to_owned()) });
            *session
        };
        ended.map(stop).collect()
    }

    /// Waits until no session is being suspended or resumed, and holds that up as long as the result lives.
    pub(super) async fn hold_lending(&self) -> impl Drop + '_ {
        self.table.lending.hold().await
    }

    /// What all sessions have done, by owner, those that have ended included.
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

    /// The spans of a session that only the supervisor knows of, for whoever has asked.
    pub(super) fn close_trace(&self, session: u64) {
        if let Some(entry) = self.table.sessions.borrow().get(&session) {
            self.table.traces.close(&entry.trail, &entry.whose(session), entry.dropped.get(), false);
        }
    }

    /// Looks at all sessions, in no order.
    pub(super) fn each(&self, mut look: impl FnMut(Shown<'_>)) {
        self.table.sessions.borrow().iter().for_each(|(session, entry)| look(entry.shown(*session)));
    }

    /// Ends all workers and waits until they are gone.
    pub(super) async fn stop_all(&self) {
        let all: Vec<u64> = self.table.sessions.borrow().keys().copied().collect();
        for session in all {
            if let Some(entry) = self.table.sessions.borrow().get(&session) {
                // So that clients need not find out by trying to go on. If the message box is full, the worker is being stopped already.
                let _ = entry.stop.try_send(Stop { sentence: Some("ended, as the server stops".to_owned()) });
            }
        }
        if tokio::time::timeout(STOP_GRACE, self.all_gone()).await.is_err() {
            tracing::warn!(sessions = self.len(), "some workers did not end in time");
        }
    }
}

impl Table {
    /// How long nothing has been heard of a session's client.
    fn idle(&self, session: u64) -> Option<Duration> {
        self.sessions.borrow().get(&session).map(|entry| entry.read().idle())
    }

    /// A session has ended, for its client to be told should it come back: as somebody wanted, or as its worker did.
    fn note_end(&self, session: u64, why: Option<String>, well: bool) {
        let Some(key) = self.sessions.borrow().get(&session).map(|entry| entry.key) else { return };
        let otherwise = if well {
            "ended, as its client was away for longer than a session is kept"
        } else {
            "lost with its worker"
        };
        self.over.borrow_mut().note(session, key, why.unwrap_or_else(|| otherwise.to_owned()));
    }

    /// Ends a session, and tells its client why.
    fn stop(&self, session: u64, sentence: &str) {
        if let Some(entry) = self.sessions.borrow().get(&session) {
            // If the message box is full, the worker is being stopped already.
            let _ = entry.stop.try_send(Stop { sentence: Some(sentence.to_owned()) });
        }
    }
}
