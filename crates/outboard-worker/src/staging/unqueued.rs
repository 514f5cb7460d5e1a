//! Copies that the driver does not know of yet, though the program has queued them, and what must
//! wait until it does.
//!
//! The driver refuses work with memory once it has been told to free it, in the order of whichever
//! stream. So it is told only when it knows of all copies that the program queued before. A call
//! that returns only when the device has nothing left to do, such as `cuMemFree`, keeps others from
//! queueing these copies, so it is made only while there are none.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::transfer::DeviceSide;
use crate::helpers::Helpers;

type Job = Box<dyn FnOnce() + Send>;

/// Such copies of a session.
pub(crate) struct Unqueued {
    helpers: Helpers,
    state: Mutex<State>,
    /// How many copies there are.
    copies: AtomicUsize,
    none_left: Condvar,
}

#[derive(Default)]
struct State {
    /// Copies there have been.
    begun: u64,
    copies: BTreeSet<u64>,
    /// What waits for all copies below this number, in order.
    jobs: VecDeque<(u64, Job)>,
    /// Those that wait no longer.
    ready: VecDeque<Job>,
    /// Whether a thread runs them.
    is_running: bool,
    /// What waits for there to be none.
    alone: VecDeque<Job>,
}

/// The device's side of a copy that is to be queued. The driver knows of the copy, or never will,
/// when this is dropped.
pub(super) struct UnqueuedSide {
    side: DeviceSide,
    number: u64,
    all: Arc<Unqueued>,
}

impl State {
    fn is_busy(&self) -> bool {
        !self.copies.is_empty() || self.is_running
    }
}

impl Unqueued {
    pub(super) fn new(helpers: Helpers) -> Arc<Unqueued> {
        let (state, none_left) = (Mutex::default(), Condvar::new());
        Arc::new(Unqueued { helpers, state, copies: AtomicUsize::new(0), none_left })
    }

    pub(super) fn add(self: &Arc<Unqueued>, side: DeviceSide) -> UnqueuedSide {
        let mut state = self.state.lock();
        let number = state.begun;
        state.begun += 1;
        state.copies.insert(number);
        self.copies.store(state.copies.len(), Ordering::Release);
        UnqueuedSide { side, number, all: Arc::clone(self) }
    }

    /// Whether there are any.
    pub(crate) fn are_any(&self) -> bool {
        self.copies.load(Ordering::Acquire) > 0
    }

    /// Whether there are any, or jobs that wait for some or run.
    pub(crate) fn is_busy(&self) -> bool {
        self.state.lock().is_busy()
    }

    /// Runs a job on a helper thread once the driver knows of all copies that there are now, and
    /// behind the jobs before it.
    pub(crate) fn then(self: &Arc<Unqueued>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        let before = state.begun;
        state.jobs.push_back((before, Box::new(job)));
        self.run_what_may(state);
    }

    /// Runs a job on a helper thread while there are no such copies: a thread that is about to add
    /// one waits until it is over.
    pub(crate) fn alone(self: &Arc<Unqueued>, job: impl FnOnce() + Send + 'static) {
        self.state.lock().alone.push_back(Box::new(job));
        self.run_alone();
    }

    /// Waits until there are none, and no jobs. To be called by the thread that adds them, before a
    /// call that waits for the device: it would wait for them, too.
    pub(crate) fn wait(&self) {
        if !cfg!(fuzzing) {
            self.none_left.wait_while(&mut self.state.lock(), |state| state.is_busy());
        }
    }

    fn run_alone(self: &Arc<Unqueued>) {
        let all = Arc::clone(self);
        self.helpers.run(move || {
            let mut state = all.state.lock();
            while state.copies.is_empty()
                && let Some(job) = state.alone.pop_front()
            {
                job();
            }
        });
    }

    /// Has a helper thread run the jobs that wait no longer.
    fn run_what_may(self: &Arc<Unqueued>, mut state: MutexGuard<'_, State>) {
        let first = state.copies.first().copied().unwrap_or(u64::MAX);
        let ready = state.jobs.iter().take_while(|(before, _)| *before <= first).count();
        let State { jobs, ready: all, .. } = &mut *state;
        all.extend(jobs.drain(..ready).map(|(_, job)| job));
        if !state.ready.is_empty() && !std::mem::replace(&mut state.is_running, true) {
            drop(state);
            let all = Arc::clone(self);
            self.helpers.run(move || all.run_what_is_ready());
        }
    }

    /// Runs jobs in their order, one at a time.
    fn run_what_is_ready(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(job) = state.ready.pop_front() else {
                state.is_running = false;
                self.none_left.notify_all();
                return;
            };
            drop(state);
            job();
        }
    }
}

impl UnqueuedSide {
    pub(super) fn side(&self) -> &DeviceSide {
        &self.side
    }
}

impl Drop for UnqueuedSide {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        state.copies.remove(&self.number);
        self.all.copies.store(state.copies.len(), Ordering::Release);
        let none_left = state.copies.is_empty();
        let is_for_alone = none_left && !state.alone.is_empty();
        self.all.run_what_may(state);
        if none_left {
            self.all.none_left.notify_all();
        }
        if is_for_alone {
            self.all.run_alone();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use outboard_wire::DevicePtr;

    use super::*;

    #[test]
    fn a_job_that_must_be_alone_waits_for_all_copies() {
        let all = Unqueued::new(Helpers::new());
        let side = || all.add(DeviceSide::Linear(DevicePtr(0)));
        let (done, said) = channel();
        let alone = |number: u32| {
            let (done, of) = (done.clone(), Arc::clone(&all));
            all.alone(move || {
                assert!(of.state.is_locked(), "nobody can add a copy");
                done.send(number).expect("the test hears");
            });
        };
        let next = || said.recv_timeout(Duration::from_millis(100)).ok();
        alone(0);
        assert_eq!(next(), Some(0));
        let one = side();
        alone(1);
        let two = side();
        drop(one);
        assert_eq!(next(), None);
        drop(two);
        assert_eq!(next(), Some(1));
    }

    #[test]
    fn a_thread_waits_for_jobs_that_run() {
        let all = Unqueued::new(Helpers::new());
        let over = Arc::new(AtomicUsize::new(0));
        let of = Arc::clone(&over);
        all.then(move || {
            std::thread::sleep(Duration::from_millis(50));
            of.store(1, Ordering::Release);
        });
        all.wait();
        assert_eq!(over.load(Ordering::Acquire), 1);
    }

    #[test]
    fn a_thread_waits_until_there_are_none() {
        let all = Unqueued::new(Helpers::new());
        all.wait();
        let copies = [0, 1].map(|at| all.add(DeviceSide::Linear(DevicePtr(at))));
        let (done, said) = channel();
        let of = Arc::clone(&all);
        let waits = std::thread::spawn(move || {
            of.wait();
            done.send(()).expect("the test hears");
        });
        for copy in copies {
            assert!(said.recv_timeout(Duration::from_millis(50)).is_err());
            drop(copy);
        }
        waits.join().expect("it waits no longer");
    }

    #[test]
    fn a_job_waits_for_the_copies_before_it_and_for_no_others() {
        let all = Unqueued::new(Helpers::new());
        let side = || all.add(DeviceSide::Linear(DevicePtr(0)));
        let (done, said) = channel();
        let job = |number: u32| {
            let done = done.clone();
            all.then(move || done.send(number).expect("the test hears"));
        };
        let next = || said.recv_timeout(Duration::from_millis(100)).ok();
        job(0);
        assert_eq!((next(), all.are_any()), (Some(0), false));
        let (one, two) = (side(), side());
        job(1);
        let three = side();
        job(2);
        drop(two);
        assert_eq!((next(), all.are_any()), (None, true));
        drop(one);
        assert_eq!(next(), Some(1));
        assert_eq!(next(), None);
        drop(three);
        assert_eq!((next(), all.are_any()), (Some(2), false));
    }
}
