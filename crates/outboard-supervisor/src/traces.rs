//! Traces: spans of sessions on their way to a collector, or to an administrator who has asked for
//! those of one session.

mod otlp;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use outboard_wire::handshake::TraceParent;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::about::{About, Kind};
pub use otlp::{Collector, CollectorError};
use outboard_control::number::Number;
use outboard_control::trace::{Span, Value, unix_now};

/// Where traces of all sessions go.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The collector; without one, sessions are traced on request only.
    pub collector: Option<Collector>,
}

/// Batches that wait for the collector. It gets what it keeps up with.
const WAITING_BATCHES: usize = 256;
/// The most spans that are gathered for one administrator.
const MOST_SPANS: usize = 100_000;
/// How long spans have to arrive when a trace ends.
const FINISH: Duration = Duration::from_secs(2);

/// The traces of a supervisor.
pub(super) struct Traces {
    collector: Option<Collector>,
    send: RefCell<Option<mpsc::Sender<ResourceSpans>>>,
    /// Told when the last batch has gone.
    gone: Notify,
    is_gone: Cell<bool>,
    lost: Cell<u64>,
    /// Traces on request, by session.
    asked: RefCell<HashMap<u64, Asked>>,
    /// Told when one of them has all that comes.
    complete: Notify,
}

#[derive(Default)]
struct Asked {
    spans: Vec<ResourceSpans>,
    count: usize,
    complete: bool,
}

/// A session's position in its trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trail {
    trace: u128,
    /// The session's own span.
    root: u64,
    /// What that is part of; 0 for nothing.
    parent: u64,
    begun: u64,
}

/// The subject of spans.
pub(super) struct Whose<'a> {
    pub(super) session: u64,
    pub(super) about: &'a About,
    pub(super) client: &'a str,
    pub(super) worker: u32,
    pub(super) transport: &'a str,
    /// When the client had been welcomed.
    pub(super) welcomed: Option<u64>,
}

impl Trail {
    /// Of a session that begins; `key` must not be guessable or known to readers of traces.
    pub(super) fn new(session: u64, parent: Option<TraceParent>) -> Trail {
        // A session's number is drawn at random; it is all that is needed to tell traces apart.
        let own = (u128::from(session) << 64) | u128::from(session.rotate_left(17) ^ unix_now());
        let root = mixed(session, 1);
        let (trace, parent) = parent.map_or((own.max(1), 0), |parent| (parent.trace, parent.span));
        Trail { trace, root, parent, begun: unix_now() }
    }

    /// The session's own span.
    pub(super) fn root(&self) -> u64 {
        self.root
    }
}

/// A number for a span of a session, not 0, from one that is unique within the session.
fn mixed(session: u64, number: u64) -> u64 {
    (session ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(23).max(1)
}

impl Traces {
    pub(super) fn new(config: &Config) -> Traces {
        Traces {
            collector: config.collector.clone(),
            send: RefCell::default(),
            gone: Notify::new(),
            is_gone: Cell::new(config.collector.is_none()),
            lost: Cell::new(0),
            asked: RefCell::default(),
            complete: Notify::new(),
        }
    }

    /// Whether spans of every session are wanted.
    pub(super) fn all(&self) -> bool {
        self.collector.is_some()
    }

    /// Sends to the collector. Ends when [`Traces::finish`] has been called and all has gone.
    pub(super) async fn run(self: std::rc::Rc<Self>) {
        let Some(collector) = self.collector.clone() else { return };
        let (send, receive) = mpsc::channel(WAITING_BATCHES);
        self.send.replace(Some(send));
        otlp::send_all(&collector, receive).await;
        self.is_gone.set(true);
        self.gone.notify_waiters();
    }

    /// Lets what is on its way to the collector go, for a while.
    pub(super) async fn finish(&self) {
        let gone = self.gone.notified();
        drop(self.send.take());
        if !self.is_gone.get() && timeout(FINISH, gone).await.is_err() {
            tracing::warn!("some spans did not reach the collector in time");
        }
    }

    /// Takes spans of a worker; `last` if no more come.
    pub(super) fn take(&self, trail: &Trail, whose: &Whose<'_>, spans: Vec<Span>, last: bool) {
        let number = |span: u64| {
            if span == trail.root { span } else { mixed(whose.session, span.wrapping_add(16)) }
        };
        let own = |mut span: Span| {
            (span.id, span.parent) = (number(span.id), number(span.parent));
            span
        };
        self.give(trail, whose, spans.into_iter().map(own).collect(), true);
        if last {
            self.end(whose.session);
        }
    }

    /// The session's own spans, up to now: those that only the supervisor knows of.
    /// To the collector only when the session has ended, so that it gets them once.
    pub(super) fn close(&self, trail: &Trail, whose: &Whose<'_>, dropped: u64, ended: bool) {
        let text = |name: &str, value: &str| (name.to_owned(), Value::Text(value.to_owned()));
        let number = |name: &str, value: u64| (name.to_owned(), Value::Number(value));
        let identity = &whose.about.identity;
        let mut attributes = vec![
            text("outboard.session", &Number(whose.session).to_string()),
            text("outboard.owner", &identity.owner),
            text("outboard.client", whose.client),
            text("outboard.peer", &whose.about.peer),
            text("outboard.transport", whose.transport),
            number("outboard.worker", whose.worker.into()),
        ];
        if let Some(token) = &identity.token {
            attributes.push(text("outboard.token", token));
        }
        if dropped > 0 {
            attributes.push(number("outboard.dropped_spans", dropped));
        }
        let (root, parent) = (trail.root, trail.parent);
        let span = |id, parent, name: &str, ended, attributes| {
            let name = name.to_owned();
            Span { id, parent, name, begun: trail.begun, ended, attributes }
        };
        let mut spans = vec![span(root, parent, "session", unix_now(), attributes)];
        if let Some(welcomed) = whose.welcomed {
            spans.push(span(mixed(whose.session, 2), root, "handshake", welcomed, Vec::new()));
        }
        self.give(trail, whose, spans, ended);
    }

    /// To the collector and to administrators who asked.
    fn give(&self, trail: &Trail, whose: &Whose<'_>, spans: Vec<Span>, to_collector: bool) {
        // Clients that only send queries are not traced.
        if spans.is_empty() || whose.about.kind != Kind::Session {
            return;
        }
        let count = spans.len();
        let spans = otlp::spans(trail.trace, whose.worker, spans);
        if let Some(asked) = self.asked.borrow_mut().get_mut(&whose.session)
            && asked.count < MOST_SPANS
        {
            asked.count += count;
            asked.spans.push(spans.clone());
        }
        if to_collector
            && let Some(send) = &*self.send.borrow()
            && send.try_send(spans).is_err()
        {
            // Said once: the collector's absence is said elsewhere.
            if self.lost.replace(self.lost.get() + 1) == 0 {
                tracing::warn!("the collector of traces does not keep up; some spans are lost");
            }
        }
    }

    /// A session's spans have all come.
    fn end(&self, session: u64) {
        if let Some(asked) = self.asked.borrow_mut().get_mut(&session) {
            asked.complete = true;
            self.complete.notify_waiters();
        }
    }

    /// Gathers spans of a session; `false` if another administrator already does.
    pub(super) fn ask(&self, session: u64) -> bool {
        match self.asked.borrow_mut().entry(session) {
            std::collections::hash_map::Entry::Occupied(_) => false,
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(Asked::default());
                true
            }
        }
    }

    /// Waits until a session's spans have all come, or the time is up.
    pub(super) async fn wait(&self, session: u64, time: Duration) {
        let complete = async {
            loop {
                let changed = self.complete.notified();
                if self.asked.borrow().get(&session).is_none_or(|asked| asked.complete) {
                    break;
                }
                changed.await;
            }
        };
        let _ = timeout(time, complete).await;
    }

    /// The end of a trace that was asked for: what has come of it, as OTLP in JSON.
    pub(super) fn answer(&self, session: u64) -> serde_json::Value {
        let spans =
            self.asked.borrow_mut().remove(&session).map(|asked| asked.spans).unwrap_or_default();
        otlp::json(spans)
    }

    /// The session is over, with it its traces.
    pub(super) fn over(&self, session: u64) {
        self.end(session);
    }
}

/// How long the end of a trace waits for the last spans.
pub(super) const LAST_SPANS: Duration = FINISH;
