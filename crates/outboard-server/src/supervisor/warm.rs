//! Workers that wait for their client with the driver started: a session that is given one is spared most of a start-up.
//!
//! A few are kept. One that is taken is replaced once the sessions that have just begun have had time for their own start, which a driver
//! that starts beside them would slow down. One that ends by itself is replaced too, more and more slowly.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use outboard_wire::Reader;
use outboard_wire::platform::Platform;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use super::workers::{Order, Worker};
use super::{WorkerCommand, until};
use crate::control::{ToSupervisor, ToWorker, Warm as Wanted};
use crate::logs;

/// After a worker was taken, the next one is started when no other is taken for this long ...
const QUIET: Duration = Duration::from_millis(500);
/// ... or at the latest after this.
const LATEST: Duration = Duration::from_secs(3);
/// How long a worker may take to get ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest pause after workers that ended by themselves; the first is a second. After as long without any, all is forgotten.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long the workers may take to be gone.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The workers that wait.
pub(super) struct Warm {
    wanted: usize,
    contexts: Vec<u32>,
    waiting: RefCell<VecDeque<Waiting>>,
    /// The number of the last one.
    last: Cell<u64>,
    /// What the last of them said of the platform.
    snapshot: RefCell<Vec<u8>>,
    /// When workers were taken since the last one was started: first and last.
    taken: Cell<Option<(Instant, Instant)>>,
    failures: RefCell<Failures>,
    /// Tasks that hold a worker.
    held: Cell<usize>,
    stopping: Cell<bool>,
    /// Told whenever one is gone.
    changed: Notify,
}

/// A worker that waits, seen from the table: a task of its own holds it.
struct Waiting {
    number: u64,
    ready: bool,
    /// Has the task hand over the worker.
    take: oneshot::Sender<oneshot::Sender<Worker>>,
}

/// Workers that have ended by themselves.
#[derive(Default)]
struct Failures {
    count: u32,
    last: Option<Instant>,
}

impl Failures {
    fn add(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.duration_since(last) > LONGEST_PAUSE * 2) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = Some(now);
    }

    /// How long to wait before the next start.
    fn pause(&self) -> Duration {
        match self.count {
            0 => Duration::ZERO,
            count => Duration::from_secs(1 << (count - 1).min(6)).min(LONGEST_PAUSE),
        }
    }
}

impl Warm {
    /// Keeps so many workers, with contexts on the devices of these ordinals.
    pub(super) fn new(wanted: usize, contexts: Vec<u32>) -> Warm {
        Warm {
            wanted,
            contexts,
            waiting: RefCell::default(),
            last: Cell::new(0),
            snapshot: RefCell::default(),
            taken: Cell::new(None),
            failures: RefCell::default(),
            held: Cell::new(0),
            stopping: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// A worker, if one waits: one that is ready, or else the one that has been getting ready the longest.
    pub(super) async fn take(&self) -> Option<Worker> {
        loop {
            let waiting = {
                let mut waiting = self.waiting.borrow_mut();
                let ready = waiting.iter().position(|waiting| waiting.ready).unwrap_or(0);
                waiting.remove(ready)?
            };
            let now = Instant::now();
            let first = self.taken.get().map_or(now, |(first, _)| first);
            self.taken.set(Some((first, now)));
            self.changed.notify_waiters();
            let (hand_over, handed_over) = oneshot::channel();
            // It may have ended in this moment; then there is none, and the next one is as good.
            if waiting.take.send(hand_over).is_ok()
                && let Ok(worker) = handed_over.await
            {
                *self.failures.borrow_mut() = Failures::default();
                return Some(worker);
            }
        }
    }

    /// How many are ready.
    pub(super) fn ready(&self) -> usize {
        self.waiting.borrow().iter().filter(|waiting| waiting.ready).count()
    }

    /// What a worker that is ready said of the platform; `None` if there is no such worker, so that nobody knows.
    pub(super) fn snapshot(&self) -> Option<Vec<u8>> {
        let snapshot = self.snapshot.borrow();
        let known = !snapshot.is_empty() && self.waiting.borrow().iter().any(|waiting| waiting.ready);
        known.then(|| snapshot.clone())
    }

    /// What a worker that was ready, now or before, said of the platform.
    pub(super) fn last_snapshot(&self) -> Option<Vec<u8>> {
        let snapshot = self.snapshot.borrow();
        (!snapshot.is_empty()).then(|| snapshot.clone())
    }

    /// How many devices there are, if a worker has said so.
    pub(super) fn known_devices(&self) -> Option<usize> {
        let snapshot = self.snapshot.borrow();
        let platform: Platform = Reader::new(&snapshot).get().ok()?;
        Some(platform.devices.len()).filter(|count| *count > 0)
    }

    /// Starts workers whenever there are fewer than wanted. Never ends.
    pub(super) async fn keep(self: Rc<Self>, command: WorkerCommand, log_format: logs::Format) {
        let order = Order { command: &command, log_format };
        loop {
            let changed = self.changed.notified();
            if self.stopping.get() || self.waiting.borrow().len() >= self.wanted {
                changed.await;
                continue;
            }
            if let Some(pause) = self.pause() {
                // Whoever takes one meanwhile makes the pause longer, whoever stops ends it.
                let _ = timeout(pause, changed).await;
                continue;
            }
            self.taken.set(None);
            match Worker::spawn(&order) {
                Ok(worker) => {
                    // One at a time: drivers that start side by side are slower than one after the other.
                    let _ = self.watch(worker).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot start a worker ahead of its client");
                    self.failures.borrow_mut().add(Instant::now());
                }
            }
        }
    }

    /// How long the next start has to wait from now on, if it has to.
    fn pause(&self) -> Option<Duration> {
        let failures = self.failures.borrow();
        let after_failure = failures.last.map(|last| last + failures.pause());
        let after_take = self.taken.get().map(|(first, last)| (last + QUIET).min(first + LATEST));
        let until = after_failure.max(after_take)?;
        until.checked_duration_since(Instant::now()).filter(|pause| !pause.is_zero())
    }

    /// Puts a new worker into the table and looks after it in a task of its own. Tells when it is ready, taken or gone.
    fn watch(self: &Rc<Self>, worker: Worker) -> oneshot::Receiver<()> {
        let (settle, settled) = oneshot::channel();
        let (take, taken) = oneshot::channel();
        let number = self.last.get() + 1;
        self.last.set(number);
        self.waiting.borrow_mut().push_back(Waiting { number, ready: false, take });
        self.held.set(self.held.get() + 1);
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let ended = this.attend(worker, number, taken, settle).await;
            this.waiting.borrow_mut().retain(|waiting| waiting.number != number);
            if let Some(reason) = ended
                && !this.stopping.get()
            {
                let mut failures = this.failures.borrow_mut();
                failures.add(Instant::now());
                let seconds = failures.pause().as_secs();
                tracing::warn!(reason, seconds, "a worker ended before it had a client; the next one waits");
            }
            this.held.set(this.held.get() - 1);
            this.changed.notify_waiters();
        });
        settled
    }

    /// Holds a worker until it is taken, or ends; then why.
    async fn attend(
        &self,
        mut worker: Worker,
        number: u64,
        mut taken: oneshot::Receiver<oneshot::Sender<Worker>>,
        settle: oneshot::Sender<()>,
    ) -> Option<String> {
        let started = Instant::now();
        let mut settle = Some(settle);
        let wanted = Wanted { contexts: self.contexts.clone(), supervisor: std::process::id() };
        if let Err(error) = worker.send(&ToWorker::Warm(wanted), None) {
            return Some(error.to_string());
        }
        let reason = loop {
            let late = START_TIMEOUT.saturating_sub(started.elapsed());
            tokio::select! {
                said = worker.receive() => match said {
                    Ok(Some((ToSupervisor::Ready { snapshot }, _))) => {
                        tracing::debug!(worker = worker.id(), ms = started.elapsed().as_millis() as u64, "warm");
                        *self.snapshot.borrow_mut() = snapshot;
                        if let Some(waiting) = self.waiting.borrow_mut().iter_mut().find(|one| one.number == number) {
                            waiting.ready = true;
                        }
                        if let Some(settle) = settle.take() {
                            let _ = settle.send(());
                        }
                    }
                    Ok(Some((ToSupervisor::Failed { sentence, .. }, _))) => break Some(sentence),
                    Ok(Some(_)) => break Some("it said what only a worker with a client says".to_owned()),
                    Ok(None) => break None,
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break None,
                    Err(error) => break Some(error.to_string()),
                },
                asked = &mut taken => match asked {
                    Ok(hand_over) => {
                        // Whoever asked waits for it. Should it be gone, the worker ends with this value.
                        let _ = hand_over.send(worker);
                        return None;
                    }
                    // The table has dropped it.
                    Err(_) => break Some("it is not needed".to_owned()),
                },
                () = sleep(late), if settle.is_some() => break Some("it took too long to start".to_owned()),
            }
        };
        worker.kill();
        let status = worker.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
        Some(reason.unwrap_or(status))
    }

    /// Keeps workers again, after they were [stopped](Warm::stop).
    pub(super) fn go_on(&self) {
        self.stopping.set(false);
        self.changed.notify_waiters();
    }

    /// Ends all of them and waits until they are gone.
    pub(super) async fn stop(&self) {
        self.stopping.set(true);
        // Their tasks end with what the table holds.
        self.waiting.borrow_mut().clear();
        let gone = until(&self.changed, || self.held.get() == 0);
        if timeout(STOP_GRACE, gone).await.is_err() {
            tracing::warn!(workers = self.held.get(), "some workers without a client did not end in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut failures = Failures::default();
        let now = Instant::now();
        assert_eq!(failures.pause(), Duration::ZERO);
        let pauses: Vec<u64> = std::iter::repeat_with(|| {
            failures.add(now);
            failures.pause().as_secs()
        })
        .take(9)
        .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        failures.add(now + LONGEST_PAUSE * 3);
        assert_eq!(failures.pause().as_secs(), 1);
    }
}
