//! The threads that run work: executors, made when there is more to do than there are, and one that
//! polls memory for the lanes that wait for a value there.
//!
//! All are daemons: nobody joins them, and the process may exit under them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
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

/// Starts a thread; false if the system has no room for it.
fn start(name: &str, body: impl FnOnce() + Send + 'static) -> bool {
    outboard_threads::start_with_stack(name, STACK, body).is_ok()
}

impl Scheduler {
    /// Calls an executor for each ready lane that none is coming for, and the poller if there is
    /// anything to poll.
    pub(super) fn kick(&'static self, state: &mut State) {
        while state.called < state.ready.len() {
            if state.lingering > 0 {
                state.lingering -= 1;
                self.summons.fetch_add(1, Ordering::Release);
            } else if !self.work_there.notify_one() {
                if state.executors == MAX_EXECUTORS
                    || !start("outboard-stream", move || self.execute())
                {
                    break;
                }
                state.executors += 1;
            }
            state.called += 1;
        }
        if !state.polling.is_empty() && !self.poll_there.notify_one() && !state.poller_started {
            state.poller_started = start("outboard-poll", move || self.poll());
        }
    }

    fn execute(&'static self) {
        let mut state = self.state.lock();
        state.called -= 1;
        loop {
            while let Some(lane) = state.ready.pop_front() {
                self.run_lane(&mut state, lane);
                self.kick(&mut state);
            }
            if !self.linger(&mut state) && self.work_there.wait_for(&mut state, KEEP).timed_out() {
                if state.ready.is_empty() {
                    state.executors -= 1;
                    return;
                }
            } else {
                state.called -= 1;
            }
        }
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
