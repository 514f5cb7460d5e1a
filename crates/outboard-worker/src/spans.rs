//! Spans of this worker's session, while the session is traced. Code that makes a span first checks
//! whether it is wanted: one relaxed load.
//!
//! A thread sends them to the supervisor a few times a second. Spans without room are dropped and
//! counted: nothing waits here.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outboard_control::messages::{self, LONGEST, ToSupervisor};
use outboard_control::trace::{Span, Value, unix_now};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Whether spans are wanted.
static ON: AtomicBool = AtomicBool::new(false);
static STATE: Mutex<SpansState> =
    Mutex::new(SpansState { spans: Vec::new(), dropped: 0, root: 0, control: None, runs: false });
/// Told when they are no longer wanted.
static CHANGED: Condvar = Condvar::new();
/// The last one's number. They are unique within the session; the supervisor makes them so within
/// the trace.
static LAST: AtomicU64 = AtomicU64::new(0);

struct SpansState {
    spans: Vec<Span>,
    dropped: u64,
    /// Their parent.
    root: u64,
    control: Option<Arc<OwnedFd>>,
    /// Whether there is a thread that sends.
    runs: bool,
}

/// How often spans are sent.
const SENT_EVERY: Duration = Duration::from_millis(200);
/// Spans that wait to be sent.
const MOST_WAITING: usize = 16 << 10;
/// Spans of one message: with names and attributes of ours, far from the longest.
const SPANS_OF_A_MESSAGE: usize = 256;

fn state() -> MutexGuard<'static, SpansState> {
    STATE.lock()
}

/// Whether spans are wanted.
#[inline]
pub(crate) fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Makes spans from now on, as parts of `root`; or no more.
pub(super) fn set(on: bool, root: u64, control: &Arc<OwnedFd>) {
    let mut state = state();
    state.root = root;
    state.control = Some(Arc::clone(control));
    ON.store(on, Ordering::Relaxed);
    if on && !state.runs {
        state.runs = std::thread::Builder::new().name("spans".into()).spawn(run).is_ok();
    }
    CHANGED.notify_all();
}

/// Sends the remaining spans when the session ends.
pub(super) fn finish() {
    if on() {
        drop(send(state(), true));
    }
}

fn run() {
    loop {
        let mut state = state();
        CHANGED.wait_for(&mut state, SENT_EVERY);
        let mut ended = !on();
        let mut state = send(state, ended);
        // It may be wanted again meanwhile.
        ended &= !on();
        if ended {
            state.runs = false;
            return;
        }
    }
}

/// Sends what has been gathered; `last` says that no more follow.
fn send(mut state: MutexGuard<'static, SpansState>, last: bool) -> MutexGuard<'static, SpansState> {
    let Some(control) = state.control.clone() else { return state };
    let mut spans = std::mem::take(&mut state.spans);
    while !spans.is_empty() || last {
        let batch: Vec<Span> = spans.drain(..spans.len().min(SPANS_OF_A_MESSAGE)).collect();
        let (count, end) = (batch.len() as u64, last && spans.is_empty());
        let message = ToSupervisor::Spans { spans: batch, dropped: state.dropped, last: end };
        match messages::send(control.as_fd(), &message, None) {
            Ok(()) => state.dropped = 0,
            // The supervisor does not keep up, or has gone.
            Err(_) => state.dropped += count,
        }
        if end {
            break;
        }
    }
    state
}

/// A span that has just ended.
#[cold]
pub(crate) fn record(name: &str, begun: Instant, attributes: Vec<(String, Value)>) {
    let ended = unix_now();
    let lasted = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    let mut state = state();
    if state.spans.len() >= MOST_WAITING {
        state.dropped += 1;
        return;
    }
    let span = Span {
        id,
        parent: state.root,
        name: name.to_owned(),
        begun: ended.saturating_sub(lasted),
        ended,
        attributes,
    };
    state.spans.push(span);
}

/// A text as attribute.
pub(crate) fn text(name: &str, value: impl Into<String>) -> (String, Value) {
    (name.to_owned(), Value::Text(value.into()))
}

/// A number as attribute.
pub(crate) fn number(name: &str, value: u64) -> (String, Value) {
    (name.to_owned(), Value::Number(value))
}

const _: () = assert!(SPANS_OF_A_MESSAGE * 256 <= LONGEST, "a batch of spans fits into a message");
