//! The threads that run work: executors, made when there is more to do than there are, and one that
//! polls memory for the lanes that wait for a value there.
//!
//! All are daemons: nobody joins them, and the process may exit under them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::Result;
use parking_lot::MutexGuard;

use super::state::{Node, State};
use super::{Lane, Scheduler, spin_until};
use crate::work::Progress;

/// Lanes that run at the same time: as many grids as a large GPU keeps resident.
const MAX_EXECUTORS: usize = 128;
/// Stack of a thread that may run kernels, in bytes: address space only, until it is used.
const STACK: usize = 8 << 20;
/// How long an executor without work stays.
const KEEP: Duration = Duration::from_secs(10);
/// How long after the last value came the poller only yields, before it sleeps.
const AWAKE: Duration = Duration::from_micros(200);
/// Longest sleep of the poller between two looks.
const LONGEST_SLEEP: Duration = Duration::from_micros(100);

/// What a thread does.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// Starts a thread; false if the system has no room for it.
pub(super) fn start(name: &'static str, body: Body) -> bool {
    outboard_threads::start_with_stack(name, STACK, body).is_ok()
}

impl Scheduler {
    /// Makes sure that somebody will run what is queued: once there is an executor, there always is
    /// one.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the system has no room for a thread.
    pub(super) fn need_executor(&'static self, state: &mut State) -> Result<()> {
        if state.executors == 0 {
            if !self.start_executor(state) {
                return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
            }
            state.called += 1;
        }
        Ok(())
    }

    fn start_executor(&'static self, state: &mut State) -> bool {
        let started = (self.start)("outboard-stream", Box::new(move || self.execute()));
        state.executors += usize::from(started);
        started
    }

    /// Calls an executor for each ready lane that none is coming for, and the poller if there is
    /// anything to poll.
    pub(super) fn kick(&'static self, state: &mut State) {
        while state.called < state.ready.len() && self.call_executor(state) {}
        if !state.polling.is_empty() && !self.poll_there.notify_one() && !state.poller_started {
            state.poller_started = (self.start)("outboard-poll", Box::new(move || self.poll()));
            if !state.poller_started && state.called == 0 {
                self.call_executor(state);
            }
        }
    }

    /// Has an executor come: one that waits for work, or a new one. False if there is none.
    fn call_executor(&'static self, state: &mut State) -> bool {
        if state.lingering > 0 {
            state.lingering -= 1;
            self.summons.fetch_add(1, Ordering::Release);
        } else if !self.work_there.notify_one()
            && (state.executors == MAX_EXECUTORS || !self.start_executor(state))
        {
            return false;
        }
        state.called += 1;
        true
    }

    fn execute(&'static self) {
        let mut state = self.state.lock();
        state.called -= 1;
        loop {
            while let Some(lane) = state.ready.pop_front() {
                self.run_lane(&mut state, lane);
                self.kick(&mut state);
            }
            if self.polls_itself(&mut state) {
                continue;
            }
            if !self.linger(&mut state) && self.work_there.wait_for(&mut state, KEEP).timed_out() {
                // The last one stays: the system may have no room for another.
                if state.ready.is_empty() && state.executors > 1 {
                    state.executors -= 1;
                    return;
                }
            } else {
                state.called -= 1;
            }
        }
    }

    /// Looks for values in memory on this thread, if lanes wait for any and the system has no room
    /// for the poller. Tells whether it did.
    fn polls_itself(&'static self, state: &mut MutexGuard<'static, State>) -> bool {
        if state.poller_started || state.polling.is_empty() {
            return false;
        }
        MutexGuard::unlocked(state, || std::thread::sleep(LONGEST_SLEEP));
        if state.poll() {
            self.kick(state);
        }
        true
    }

    /// Stays awake for a moment: a program that launches and waits in turn has the next work soon,
    /// and waking a thread that sleeps takes longer than most of it. True if this thread has been
    /// called.
    fn linger(&self, state: &mut MutexGuard<'_, State>) -> bool {
        state.lingering += 1;
        let taken = MutexGuard::unlocked(state, || {
            spin_until(|| {
                let take = |summons: usize| summons.checked_sub(1);
                self.summons.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok()
            })
        });
        if taken {
            return true;
        }
        if state.lingering > 0 {
            state.lingering -= 1;
            return false;
        }
        // Called since the last look.
        self.summons.fetch_sub(1, Ordering::Acquire);
        true
    }

    /// Runs the first node of a ready lane.
    fn run_lane(&'static self, state: &mut MutexGuard<'static, State>, lane: Lane) {
        if let Some(node) = state.take(lane)
            && self.run_node(state, lane, node)
        {
            state.advance(lane);
        }
    }

    /// Runs a node of a lane that is marked as running. False if it has to wait for a value in
    /// memory.
    pub(super) fn run_node(
        &'static self,
        state: &mut MutexGuard<'static, State>,
        lane: Lane,
        mut node: Node,
    ) -> bool {
        let ctx = state.context_of(lane);
        let dropped = state.error_of(lane);
        let waiting = MutexGuard::unlocked(state, || {
            // A defect in the engine must not leave the program waiting for ever.
            let progress = catch_unwind(AssertUnwindSafe(|| match dropped {
                Some(error) => {
                    node.work.drop_with(error);
                    Progress::Done
                }
                None => node.work.run(),
            }));
            let progress = progress.unwrap_or(Progress::Failed(CUresult::CUDA_ERROR_UNKNOWN));
            match progress {
                Progress::Done => Ok(None),
                Progress::Waiting => Ok(Some(node)),
                Progress::Failed(error) => {
                    if let Some(ctx) = ctx {
                        (self.on_failure)(ctx, error);
                    }
                    Err(error)
                }
            }
        });
        match waiting {
            Ok(Some(node)) => {
                state.poll_later(lane, node);
                return false;
            }
            Ok(None) => {}
            Err(error) => {
                if let Some(ctx) = ctx {
                    state.fail(ctx, error);
                }
            }
        }
        state.finish(lane);
        true
    }

    fn poll(&'static self) {
        let mut state = self.state.lock();
        let mut awake = Instant::now();
        let mut sleep = Duration::ZERO;
        loop {
            if state.polling.is_empty() {
                self.poll_there.wait(&mut state);
                (awake, sleep) = (Instant::now(), Duration::ZERO);
            }
            if state.poll() {
                self.kick(&mut state);
                (awake, sleep) = (Instant::now(), Duration::ZERO);
            }
            MutexGuard::unlocked(&mut state, || {
                if awake.elapsed() < AWAKE {
                    std::thread::yield_now();
                } else {
                    sleep = LONGEST_SLEEP.min(sleep + Duration::from_micros(1));
                    std::thread::sleep(sleep);
                }
            });
        }
    }
}
