//! Gauges of the devices, for the metrics and the broker. A worker without a client queries NVML:
//! this process loads no driver library, and a driver that hangs must not block it. The worker
//! exists only while somebody reads them.

mod keep;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout;

use super::changes::until;
use outboard_control::messages::Gauge;

/// Answers younger than this are used again: a GPU that is asked has to answer.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// How long a reader of metrics waits for an answer, unless the last reader got none.
const READERS_PATIENCE: Duration = Duration::from_millis(500);
/// How long the worker may take to start, and how long to answer.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The worker ends after this time without a reader.
const ENDS_UNREAD_AFTER: Duration = Duration::from_secs(300);
/// After a worker that failed, the next one waits.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);
/// How long the worker may take to be gone.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The latest gauges of the devices.
#[derive(Default)]
pub(super) struct Gauges {
    last: RefCell<Option<Read>>,
    /// Somebody has asked.
    asked: Notify,
    /// There is an answer.
    answered: Notify,
    /// The last reader got no answer in time.
    is_late: Cell<bool>,
    is_stopping: Cell<bool>,
    has_worker: Cell<bool>,
    /// Told when one of the last two changes.
    changed: Notify,
}

/// What the devices' library said, and when.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub(super) when: Instant,
    pub(super) devices: Vec<Gauge>,
}

/// Why a worker is of no more use.
enum Over {
    /// Nobody asks any more, or all ends.
    Unwanted,
    Failed(String),
}

impl Gauges {
    /// How the devices do or did, after a moment at most.
    pub(super) async fn read(&self) -> Option<Read> {
        if self.age().is_none_or(|age| age >= FRESH_FOR) {
            let answered = self.answered.notified();
            self.asked.notify_one();
            if !self.is_late.get() && timeout(READERS_PATIENCE, answered).await.is_err() {
                self.is_late.set(true);
            }
        }
        self.last.borrow().clone()
    }

    /// How the devices did lately, without waiting. What is older is asked for.
    pub(super) fn latest(&self, fresh_for: Duration) -> Option<Read> {
        if self.age().is_none_or(|age| age >= fresh_for) {
            self.asked.notify_one();
        }
        self.last.borrow().clone()
    }

    fn age(&self) -> Option<Duration> {
        self.last.borrow().as_ref().map(|last| last.when.elapsed())
    }

    fn take(&self, devices: Vec<Gauge>) {
        *self.last.borrow_mut() = Some(Read { when: Instant::now(), devices });
        self.is_late.set(false);
        self.answered.notify_waiters();
    }

    /// Has no worker until [it goes on](Gauges::go_on), and waits until there is none.
    pub(super) async fn stop(&self) {
        self.is_stopping.set(true);
        self.changed.notify_waiters();
        if timeout(STOP_GRACE, until(&self.changed, || !self.has_worker.get())).await.is_err() {
            tracing::warn!("the worker that looks at the devices did not end in time");
        }
    }

    pub(super) fn go_on(&self) {
        self.is_stopping.set(false);
        self.changed.notify_waiters();
    }
}
