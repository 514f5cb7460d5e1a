//! Gauges of the devices, for the metrics. A worker without a client queries NVML: this process
//! loads no driver library, and a driver that hangs must not block it. The worker exists only while
//! metrics are read.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::workers::{Order, Worker};
use super::{Supervisor, until};
use outboard_control::messages::{Gauge, ToSupervisor, ToWorker, Watch};

/// Answers younger than this are used again: a GPU that is asked has to answer.
const FRESH: Duration = Duration::from_secs(1);
/// How long a reader of metrics waits for an answer, unless the last reader got none.
const READERS_PATIENCE: Duration = Duration::from_millis(500);
/// How long the worker may take to start, and how long to answer.
const START: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(20);
/// The worker ends after this time without a reader.
const UNREAD: Duration = Duration::from_secs(300);
/// After a worker that failed, the next one waits.
const PAUSE: Duration = Duration::from_secs(60);
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
        if self.age().is_none_or(|age| age >= FRESH) {
            let answered = self.answered.notified();
            self.asked.notify_one();
            if !self.is_late.get() && timeout(READERS_PATIENCE, answered).await.is_err() {
                self.is_late.set(true);
            }
        }
        self.last.borrow().clone()
    }

    fn age(&self) -> Option<Duration> {
        self.last.borrow().as_ref().map(|last| last.when.elapsed())
    }

    /// Requests gauges for each reader. Never ends.
    pub(super) async fn keep(supervisor: Rc<Supervisor>) {
        let this = &supervisor.gauges;
        loop {
            this.asked.notified().await;
            if this.is_stopping.get() {
                until(&this.changed, || !this.is_stopping.get()).await;
            }
            this.has_worker.set(true);
            let over = this.ask(&supervisor).await;
            this.has_worker.set(false);
            this.changed.notify_waiters();
            if let Over::Failed(reason) = over {
                let seconds = PAUSE.as_secs();
                tracing::warn!(
                    reason,
                    seconds,
                    "the metrics lack how the devices do; the next attempt waits"
                );
                sleep(PAUSE).await;
            }
        }
    }

    /// Starts a worker and asks it whenever a reader asks.
    async fn ask(&self, supervisor: &Supervisor) -> Over {
        let config = &supervisor.config;
        let order = Order { command: &config.worker, log_format: config.log_format };
        let mut worker = match Worker::spawn(&order) {
            Ok(worker) => worker,
            Err(error) => return Over::Failed(error.to_string()),
        };
        let over = tokio::select! {
            over = self.ask_worker(supervisor, &worker) => over,
            () = until(&self.changed, || self.is_stopping.get()) => Over::Unwanted,
        };
        worker.kill();
        // One that hangs in the system cannot be killed; there is to be no second one beside it.
        let _ = worker.wait().await;
        over
    }

    async fn ask_worker(&self, supervisor: &Supervisor, worker: &Worker) -> Over {
        let watch =
            Watch { supervisor: std::process::id(), platform: supervisor.warm.last_snapshot() };
        if let Err(error) =
            worker.send(&ToWorker::Watch(watch), Some(supervisor.sessions.shared_board().as_fd()))
        {
            return Over::Failed(error.to_string());
        }
        let mut patience = START;
        loop {
            if let Err(error) = worker.send(&ToWorker::Look, None) {
                return Over::Failed(error.to_string());
            }
            match timeout(patience, worker.receive()).await {
                Ok(Ok(Some((ToSupervisor::Gauges(devices), _)))) => self.take(devices),
                Ok(Ok(Some((ToSupervisor::Failed { sentence, .. }, _)))) => {
                    return Over::Failed(sentence);
                }
                Ok(Ok(Some(_))) => {
                    return Over::Failed(
                        "its worker said what only one with a client says".to_owned(),
                    );
                }
                Ok(Ok(None)) => return Over::Failed("its worker has ended".to_owned()),
                Ok(Err(error)) => return Over::Failed(error.to_string()),
                Err(_) => {
                    let seconds = patience.as_secs();
                    return Over::Failed(format!(
                        "the library that knows has not answered for {seconds} seconds"
                    ));
                }
            }
            patience = ANSWER;
            // Readers that have asked meanwhile use this answer, unless it is old.
            loop {
                if timeout(UNREAD, self.asked.notified()).await.is_err() {
                    return Over::Unwanted;
                }
                if self.age().is_none_or(|age| age >= FRESH) {
                    break;
                }
            }
        }
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
