//! The one thread that drives the session's large copies.
//!
//! The device shows its progress by flags in staging memory, which wake no processor. While the
//! device may make progress, this thread polls all copies in turn, without a pause at first, then
//! ever more rarely, since a stream may be blocked for hours. If a copy waits for bytes, the thread
//! that receives them wakes this one; without copies, it sleeps.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use outboard_transport::Signal;

use super::unqueued::Unqueued;
use crate::helpers::Helpers;
use crate::spans;

/// How long it looks without a pause, and its pauses after that. The last one is the cost of a
/// blocked stream.
const SPIN: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(20);
const LONG_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// A copy that has not moved for this long is looked at more rarely, and its stream is asked now
/// and then whether it is still alive.
const STALLED: Duration = Duration::from_millis(20);
/// One that has not moved for this long is looked at more rarely still.
const LONG_STALLED: Duration = Duration::from_secs(1);

/// A stream is asked again after this part of the time for which its copy has not moved, and after
/// [`LONG_STALLED`] at most: hundreds of copies may wait for one kernel.
const PART_OF_STALL: u32 = 8;

/// How long a stream is left alone whose copy has not moved for so long.
fn until_next_check(stalled: Duration) -> Duration {
    (stalled / PART_OF_STALL).clamp(STALLED, LONG_STALLED)
}

/// Streams that are asked at once: each takes a helper thread.
const MAX_LIVENESS_CHECKS: usize = 8;

/// The progress of a copy since it was last polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It has moved on.
    Moved,
    /// It waits for the device.
    ForDevice,
    /// It waits for bytes to come or to go; the thread that moves them calls [`Watcher::nudge`].
    ForBytes,
    /// It is over.
    Ended,
}

/// A copy under way.
pub(super) trait Watched: Send {
    /// Looks, and does what can be done.
    fn step(&mut self) -> Step;

    /// A function that checks whether its stream may still progress. It is called on another
    /// thread, since it may take long.
    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send>;

    /// Its stream will not move any more.
    fn give_up(&mut self);
}

/// A copy that moves bytes.
pub(super) trait Moving: Watched {
    /// Whether the device is done with it.
    fn is_copied(&self) -> bool;

    /// Whether the device has begun with it.
    fn has_begun(&self) -> bool;

    /// The other side is gone: lets the device pass what is queued, with whatever bytes there are.
    fn break_off(&mut self);
}

/// The description of a copy, for its span.
pub(super) struct CopyDescription {
    pub(super) to_device: bool,
    pub(super) way: &'static str,
    pub(super) bytes: u64,
}

/// A copy of which a span is to be made.
struct Timed {
    copy: Box<dyn Watched>,
    what: CopyDescription,
    begun: Instant,
}

impl Watched for Timed {
    fn step(&mut self) -> Step {
        match self.copy.step() {
            Step::Ended => {
                let direction = if self.what.to_device { "to_device" } else { "from_device" };
                let attributes = vec![
                    spans::number("outboard.bytes", self.what.bytes),
                    spans::text("outboard.direction", direction),
                    spans::text("outboard.way", self.what.way),
                ];
                spans::record("copy", self.begun, attributes);
                Step::Ended
            }
            // Copies that the client moves itself are never nudged; their end is to be seen all the
            // same.
            Step::ForBytes if self.what.way == "shared" => Step::ForDevice,
            step => step,
        }
    }

    fn liveness_check(&self) -> Box<dyn FnOnce() -> bool + Send> {
        self.copy.liveness_check()
    }

    fn give_up(&mut self) {
        self.copy.give_up();
    }
}

/// The thread, as others see it.
pub(crate) struct Watcher {
    state: Mutex<WatcherState>,
    wake: Signal,
    helpers: Helpers,
    unqueued: Arc<Unqueued>,
    started: Once,
    /// Streams that are being asked.
    liveness_checks: Arc<AtomicUsize>,
    /// Copies that have not ended.
    copies: AtomicUsize,
}

#[derive(Default)]
struct WatcherState {
    new: Vec<Box<dyn Watched>>,
    nudged: bool,
    #[cfg(fuzzing)]
    over: bool,
}

struct Entry {
    copy: Box<dyn Watched>,
    /// When it moved last.
    moved: Instant,
    /// When its stream was asked last, and the answer.
    last_check: Option<(Instant, Arc<AtomicU8>)>,
    /// The stream is dead; only its earlier work still has to be read.
    dead: bool,
}

const UNKNOWN: u8 = 0;
const ALIVE: u8 = 1;
const DEAD: u8 = 2;

impl Watcher {
    pub(crate) fn new(helpers: Helpers) -> Arc<Watcher> {
        let (state, wake) = (Mutex::default(), Signal::default());
        Arc::new(Watcher {
            state,
            wake,
            unqueued: Unqueued::new(helpers.clone()),
            helpers,
            started: Once::new(),
            liveness_checks: Arc::default(),
            copies: AtomicUsize::new(0),
        })
    }

    fn state(&self) -> MutexGuard<'_, WatcherState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a job elsewhere.
    pub(super) fn helpers(&self) -> &Helpers {
        &self.helpers
    }

    /// The copies that the driver does not know of yet.
    pub(crate) fn unqueued(&self) -> &Arc<Unqueued> {
        &self.unqueued
    }

    /// Looks after a copy until it has ended.
    pub(super) fn add(self: &Arc<Watcher>, copy: Box<dyn Watched>, what: CopyDescription) {
        let timed = spans::on();
        let copy = if timed { Box::new(Timed { copy, what, begun: Instant::now() }) } else { copy };
        self.started.call_once(|| {
            let watcher = Arc::clone(self);
            let spawned =
                std::thread::Builder::new().name("copies".into()).spawn(move || watcher.run());
            if let Err(error) = spawned {
                tracing::error!(%error, "no thread to look after copies");
            }
        });
        self.copies.fetch_add(1, Ordering::Relaxed);
        self.state().new.push(copy);
        self.wake.tell_one();
    }

    /// Whether there is more than one copy to look after.
    pub(super) fn has_others(&self) -> bool {
        self.copies.load(Ordering::Relaxed) > 1
    }

    /// Bytes have come or gone that a copy may wait for.
    pub(crate) fn nudge(&self) {
        let mut state = self.state();
        if !state.nudged {
            state.nudged = true;
            drop(state);
            self.wake.tell_one();
        }
    }

    /// Ends its thread, which elsewhere ends with the process, and all copies.
    #[cfg(fuzzing)]
    pub(crate) fn end(&self) {
        let mut state = self.state();
        (state.over, state.nudged) = (true, true);
        state.new.clear();
        drop(state);
        self.wake.tell_one();
    }

    fn run(&self) {
        precise_pauses();
        let mut entries: Vec<Entry> = Vec::new();
        let mut moved = Instant::now();
        loop {
            {
                let mut state = self.state();
                #[cfg(fuzzing)]
                if state.over {
                    return;
                }
                state.nudged = false;
                let now = Instant::now();
                let new = state.new.drain(..).map(|copy| Entry {
                    copy,
                    moved: now,
                    last_check: None,
                    dead: false,
                });
                let before = entries.len();
                entries.extend(new);
                if entries.len() > before {
                    moved = now;
                }
            }
            // Hundreds of copies may be there: the clock is read once for all.
            let now = Instant::now();
            let (mut for_device, mut any) = (false, false);
            entries.retain_mut(|entry| {
                let step = entry.copy.step();
                match step {
                    Step::Moved => entry.progressed(),
                    Step::ForDevice => {
                        for_device = true;
                        entry.check_liveness(self, now);
                    }
                    Step::ForBytes => entry.check_liveness(self, now),
                    Step::Ended => {
                        self.copies.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                any |= matches!(step, Step::Moved | Step::Ended);
                step != Step::Ended
            });
            if any {
                moved = Instant::now();
                continue;
            }
            let still = moved.elapsed();
            if still < SPIN {
                // Others may need the processor for what this one waits for. After the last copy,
                // the next one may be near.
                std::thread::yield_now();
                continue;
            }
            let pause = match still {
                _ if entries.is_empty() => None,
                _ if !for_device => Some(STALLED),
                _ if still < STALLED => Some(PAUSE),
                _ if still < LONG_STALLED => Some(LONG_PAUSE),
                _ => Some(LONGEST_PAUSE),
            };
            self.pause(pause);
        }
    }

    /// Sleeps for as long, or until there is something new.
    fn pause(&self, pause: Option<Duration>) {
        let state = self.state();
        if state.nudged || !state.new.is_empty() {
            return;
        }
        match pause {
            Some(pause) => drop(self.wake.wait_timeout(state, pause)),
            None => drop(self.wake.wait(state)),
        }
    }
}

impl Entry {
    fn progressed(&mut self) {
        self.moved = Instant::now();
        self.last_check = None;
    }

    /// Asks a stream that has not moved for long whether it ever will, and takes its answer.
    fn check_liveness(&mut self, watcher: &Watcher, now: Instant) {
        let stalled = now.saturating_duration_since(self.moved);
        match &self.last_check {
            Some((_, answer)) if answer.load(Ordering::Acquire) == DEAD => {
                if self.dead {
                    self.copy.give_up();
                }
                self.dead = true;
            }
            Some((when, answer))
                if answer.load(Ordering::Acquire) == UNKNOWN
                    || now.saturating_duration_since(*when) < until_next_check(stalled) => {}
            _ if stalled < STALLED => {}
            _ if watcher.liveness_checks.load(Ordering::Acquire) >= MAX_LIVENESS_CHECKS => {}
            _ => {
                let answer = Arc::new(AtomicU8::new(UNKNOWN));
                self.last_check = Some((now, Arc::clone(&answer)));
                let (alive, liveness_checks) =
                    (self.copy.liveness_check(), Arc::clone(&watcher.liveness_checks));
                liveness_checks.fetch_add(1, Ordering::AcqRel);
                watcher.helpers.run(move || {
                    answer.store(if alive() { ALIVE } else { DEAD }, Ordering::Release);
                    liveness_checks.fetch_sub(1, Ordering::AcqRel);
                });
            }
        }
    }
}

/// By default, Linux lets a thread sleep 50 µs longer than it asks for.
fn precise_pauses() {
    // SAFETY: sets a property of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_stands_still_for_long_is_asked_rarely_and_soon_at_first() {
        let asked_within = |limit: Duration| {
            let (mut stalled, mut times) = (STALLED, 0);
            while stalled < limit {
                times += 1;
                stalled += until_next_check(stalled);
            }
            times
        };
        assert_eq!(asked_within(Duration::from_millis(100)), 4);
        assert!(asked_within(Duration::from_secs(60)) < 100);
        assert_eq!(until_next_check(Duration::from_secs(3600)), LONG_STALLED);
    }
}
