//! Warm workers, which have started the driver before they have a client: a session that gets one
//! skips most of the start-up.
//!
//! As many are kept as sessions came at once, between bounds. A worker that was taken is replaced
//! once the sessions that have just begun have had time for their own start, which another starting
//! driver would slow down. A worker that ends by itself is replaced too, more and more slowly.

pub(crate) mod bounds;
mod demand;
mod failures;
mod keep;
mod memory;
mod pace;
mod windows;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use outboard_wire::Reader;
use outboard_wire::platform::Platform;
use outboard_wire::window::Window;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};

use super::changes::until;
use super::config::Config;
use super::workers::Worker;
pub use bounds::Bounds;
use demand::Demand;
use failures::Failures;
use memory::Memory;
use outboard_control::messages::{ToSupervisor, ToWorker, Warm as Wanted};
use pace::Pace;
pub(super) use windows::first_acceptable;
use windows::{Windows, suitable};

/// Drivers that are started at once while sessions come at once: on an H100 one after the other
/// makes 3.2 a second, two at once 4.3, four and more 5.0.
const STARTS: usize = 4;
/// The same while sessions wait for drivers of their own, which every further one slows down.
const STARTS_BESIDE_SESSIONS: usize = 2;
/// How long a worker may take to get ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the workers may take to be gone.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// The workers that wait.
pub(super) struct Warm {
    bounds: Bounds,
    contexts: Vec<u32>,
    waiting: RefCell<VecDeque<Waiting>>,
    /// The number of the last one.
    last: Cell<u64>,
    /// What the last of them said of the platform, ...
    snapshot: RefCell<Vec<u8>>,
    /// ... of its devices, ...
    memory: RefCell<Memory>,
    /// ... and how long it took to get ready.
    start: Cell<Duration>,
    demand: RefCell<Demand>,
    pace: RefCell<Pace>,
    failures: RefCell<Failures>,
    windows: Windows,
    /// Tasks that hold a worker.
    held: Cell<usize>,
    /// Sessions that wait for a driver to start.
    cold: Cell<usize>,
    stopping: Cell<bool>,
    /// Told whenever one is ready or gone, or more are wanted.
    changed: Notify,
}

/// A worker that waits, seen from the table: a task of its own holds it.
struct Waiting {
    number: u64,
    process: u32,
    ready: bool,
    /// The window in which its driver places everything; once it is ready, where it does, if it
    /// keeps to a window.
    window: Option<Window>,
    /// Has the task hand over the worker.
    take: oneshot::Sender<oneshot::Sender<Worker>>,
}

/// A worker that was kept, and whether it is ready.
pub(super) struct Taken {
    pub(super) worker: Worker,
    pub(super) ready: bool,
    pub(super) window: Option<Window>,
}

/// A session that waits for a driver to start.
pub(super) struct Cold<'a>(&'a Warm);

impl Drop for Cold<'_> {
    fn drop(&mut self) {
        self.0.cold.set(self.0.cold.get() - 1);
        self.0.changed.notify_waiters();
    }
}

impl Warm {
    /// Keeps workers as it is configured.
    pub(super) fn new(config: &Config) -> Warm {
        Warm {
            bounds: config.warm,
            contexts: config.warm_contexts.clone(),
            waiting: RefCell::default(),
            last: Cell::new(0),
            snapshot: RefCell::default(),
            memory: RefCell::default(),
            start: Cell::default(),
            demand: RefCell::new(Demand::new(config.warm, config.warm_for)),
            pace: RefCell::default(),
            failures: RefCell::default(),
            windows: Windows::new(&config.listen),
            held: Cell::new(0),
            cold: Cell::new(0),
            stopping: Cell::new(false),
            changed: Notify::new(),
        }
    }

    /// A session has come from an owner who may have that many at once.
    pub(super) fn came(&self, holder: &str, sessions: Option<u32>) {
        self.demand.borrow_mut().came(holder, sessions, self.start.get(), Instant::now());
        self.changed.notify_waiters();
    }

    /// Counts a session that waits for a driver to start, until the result is dropped.
    pub(super) fn cold(&self) -> Cold<'_> {
        self.cold.set(self.cold.get() + 1);
        Cold(self)
    }

    /// A worker, if one waits that suits a client which accepts these windows, or anything.
    pub(super) async fn take(&self, accepted: Option<&[Window]>) -> Option<Taken> {
        loop {
            let waiting = {
                let mut waiting = self.waiting.borrow_mut();
                let place = suitable(waiting.iter(), accepted)?;
                waiting.remove(place)?
            };
            self.pace.borrow_mut().taken(Instant::now());
            self.changed.notify_waiters();
            let (hand_over, handed_over) = oneshot::channel();
            // It may have ended in this moment; then there is none, and the next one is as good.
            if waiting.take.send(hand_over).is_ok()
                && let Ok(worker) = handed_over.await
            {
                *self.failures.borrow_mut() = Failures::default();
                return Some(Taken { worker, ready: waiting.ready, window: waiting.window });
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// How many are ready.
    pub(super) fn ready(&self) -> usize {
        self.waiting.borrow().iter().filter(|waiting| waiting.ready).count()
    }

    /// How many are wanted, by what came and what there is room for, in a server that takes so many
    /// sessions yet.
    pub(super) fn wanted(&self, sessions_left: usize) -> usize {
        let wanted = self.demand.borrow_mut().wanted(Instant::now());
        let room = self.memory.borrow().room(self.bounds).min(sessions_left);
        wanted.min(room.max(self.bounds.least))
    }

    /// Bytes of each device that they hold, by ordinal, as far as that is known.
    pub(super) fn device_memory(&self) -> BTreeMap<u32, u64> {
        self.memory.borrow().held(self.ready())
    }

    /// Bytes of the host's memory that they hold.
    pub(super) fn host_memory(&self) -> u64 {
        let resident = |waiting: &Waiting| resident(waiting.process).unwrap_or(0);
        self.waiting.borrow().iter().map(resident).sum()
    }

    /// The platform as a worker that is ready has described it; `None` without such a worker.
    pub(super) fn snapshot(&self) -> Option<Vec<u8>> {
        let snapshot = self.snapshot.borrow();
        let known =
            !snapshot.is_empty() && self.waiting.borrow().iter().any(|waiting| waiting.ready);
        known.then(|| snapshot.clone())
    }

    /// The platform as a worker that is or was ready has described it.
    pub(super) fn last_snapshot(&self) -> Option<Vec<u8>> {
        let snapshot = self.snapshot.borrow();
        (!snapshot.is_empty()).then(|| snapshot.clone())
    }

    /// The platform, as soon as a worker has described it.
    pub(super) async fn platform(&self) -> Platform {
        until(&self.changed, || self.known_devices().is_some()).await;
        Reader::new(&self.snapshot.borrow()).get().unwrap_or_default()
    }

    /// How many devices there are, if a worker has said so.
    pub(super) fn known_devices(&self) -> Option<usize> {
        let snapshot = self.snapshot.borrow();
        let platform: Platform = Reader::new(&snapshot).get().ok()?;
        Some(platform.devices.len()).filter(|count| *count > 0)
    }

    /// Ends workers that are no longer wanted: those that were started last.
    fn dismiss(&self, count: usize) {
        let mut waiting = self.waiting.borrow_mut();
        let rest = waiting.len() - count;
        // Their tasks end with what the table holds.
        waiting.truncate(rest);
    }

    /// How long the next start has to wait from now on.
    fn pause(&self) -> Pause {
        let failed = self.failures.borrow().until().map_or(Duration::ZERO, from_now);
        if !failed.is_zero() {
            return Pause::For(failed);
        }
        let starting = self.waiting.borrow().iter().filter(|waiting| !waiting.ready).count();
        let cold = self.cold.get();
        let now = Instant::now();
        let one_at_a_time = self.demand.borrow_mut().is_low(now);
        let pause = self.pace.borrow().pause(one_at_a_time, now);
        if !pause.is_zero() {
            return Pause::For(pause);
        }
        let full = match one_at_a_time {
            true => starting > 0,
            false => starting + cold >= if cold > 0 { STARTS_BESIDE_SESSIONS } else { STARTS },
        };
        if full { Pause::UntilChanged } else { Pause::No }
    }

    /// A worker could not be started, or ended by itself: for now, fewer are enough. How many
    /// seconds the next one waits.
    fn failed(&self) -> u64 {
        self.demand.borrow_mut().forget();
        let mut failures = self.failures.borrow_mut();
        failures.add(Instant::now());
        failures.pause().as_secs()
    }

    /// Puts a new worker into the table and looks after it in a task of its own.
    fn watch(self: &Rc<Self>, worker: Worker) {
        let (take, taken) = oneshot::channel();
        let number = self.last.get() + 1;
        self.last.set(number);
        let others: Vec<_> =
            self.waiting.borrow().iter().filter_map(|waiting| waiting.window).collect();
        let window = self.windows.next(&others);
        let waiting =
            Waiting { number, process: worker.id(), ready: false, window: Some(window), take };
        self.waiting.borrow_mut().push_back(waiting);
        self.held.set(self.held.get() + 1);
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let ended = this.attend(worker, (number, window), taken).await;
            this.waiting.borrow_mut().retain(|waiting| waiting.number != number);
            if let Some(reason) = ended
                && !this.stopping.get()
            {
                let seconds = this.failed();
                tracing::warn!(
                    reason,
                    seconds,
                    "a worker ended before it had a client; the next one waits"
                );
            }
            this.held.set(this.held.get() - 1);
            this.changed.notify_waiters();
        });
    }

    /// Holds a worker until it is taken or not wanted any more, or ends by itself; then why.
    async fn attend(
        &self,
        mut worker: Worker,
        (number, window): (u64, Window),
        mut taken: oneshot::Receiver<oneshot::Sender<Worker>>,
    ) -> Option<String> {
        let started = Instant::now();
        let measure = self.memory.borrow().is_to_be_measured();
        let wanted = Wanted {
            contexts: self.contexts.clone(),
            measure,
            supervisor: std::process::id(),
            window,
        };
        if let Err(error) = worker.send(&ToWorker::Warm(wanted), None) {
            return Some(error.to_string());
        }
        let mut ready = false;
        let reason = loop {
            let late = START_TIMEOUT.saturating_sub(started.elapsed());
            tokio::select! {
                said = worker.receive() => match said {
                    Ok(Some((ToSupervisor::Ready { snapshot, contexts, window }, _))) => {
                        let start = started.elapsed();
                        let shown = window.map(tracing::field::display);
                        tracing::debug!(worker = worker.id(), ms = start.as_millis() as u64, window = shown, "warm");
                        ready = true;
                        self.start.set(start);
                        *self.snapshot.borrow_mut() = snapshot;
                        self.memory.borrow_mut().told(&contexts);
                        if let Some(waiting) = self.waiting.borrow_mut().iter_mut().find(|one| one.number == number) {
                            (waiting.ready, waiting.window) = (true, window);
                        }
                        self.changed.notify_waiters();
                    }
                    Ok(Some((ToSupervisor::Failed { sentence, .. }, _))) => break Some(sentence),
                    Ok(Some(_)) => break Some("it said what only a worker with a client says".to_owned()),
                    Ok(None) => break None,
                    Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break None,
                    Err(error) => break Some(error.to_string()),
                },
                asked = &mut taken => {
                    if let Ok(hand_over) = asked {
                        // The caller waits for it. Should it be gone, the worker ends with this
                        // value.
                        let _ = hand_over.send(worker);
                    } else {
                        // The table has dropped it.
                        worker.kill();
                        let _ = worker.wait().await;
                    }
                    return None;
                }
                () = sleep(late), if !ready => break Some("it took too long to start".to_owned()),
            }
        };
        worker.kill();
        let status =
            worker.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
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
            tracing::warn!(
                workers = self.held.get(),
                "some workers without a client did not end in time"
            );
        }
    }
}

/// Until when the next worker is not to be started.
enum Pause {
    No,
    For(Duration),
    UntilChanged,
}

fn from_now(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// Bytes of memory that a process has, by what the system says.
fn resident(process: u32) -> Option<u64> {
    let sizes = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = sizes.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}
