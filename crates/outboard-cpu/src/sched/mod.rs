//! Streams: queues of work that run in order, and what makes one wait for another.
//!
//! Each stream of a context, its legacy default stream included, is a [`Lane`]: a queue whose nodes
//! run one after another. A node may also wait for nodes of other lanes, named by [`Ticket`]s. Both
//! kinds of waiting that CUDA has come down to tickets: a wait for an event, and the rule of the
//! legacy default stream (its work waits for all earlier work of the blocking streams, and their
//! later work for it). Tickets only ever name work submitted before, so lanes cannot wait in a
//! circle.
//!
//! One lock guards all lanes; it is held for bookkeeping only, never while work runs. Lanes with
//! something to do are handed to executor threads (see [`exec`]); one that waits for another lane,
//! or for a value in memory, occupies no thread.

mod exec;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::work::{Progress, Work};
use state::{Node, Phase, State, Waiter};

/// A queue of work.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lane {
    /// The legacy default stream of a context.
    Legacy(ContextId),
    /// A stream that the program made.
    Created(ObjectId),
}

/// A piece of work that has been submitted, by its place in its lane. A lane that is gone has done
/// all its work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ticket {
    lane: Lane,
    number: u64,
}

/// All lanes of the process.
pub(crate) struct Scheduler {
    state: Mutex<State>,
    /// Executors without work wait here.
    work_there: Condvar,
    /// Calls for executors that linger and that none of them has answered.
    summons: AtomicUsize,
    /// The poller waits here while no lane waits for a value.
    poll_there: Condvar,
    /// Told when work of a context fails, before anything that waits for it goes on.
    on_failure: fn(ContextId, CUresult),
    /// Pieces of work that a lane holds before a caller waits.
    most_queued: usize,
    /// Starts a thread with a name; false if the system has no room for it.
    start: fn(&'static str, exec::Body) -> bool,
}

impl Scheduler {
    pub(crate) fn new(on_failure: fn(ContextId, CUresult), most_queued: usize) -> Scheduler {
        let (work_there, poll_there) = (Condvar::new(), Condvar::new());
        Scheduler {
            state: Mutex::default(),
            work_there,
            summons: AtomicUsize::new(0),
            poll_there,
            on_failure,
            most_queued,
            start: exec::start,
        }
    }

    /// Makes a context with its legacy default stream.
    pub(crate) fn open(&self, ctx: ContextId) {
        self.state.lock().open(ctx);
    }

    /// Drops all work of the context that has not begun, waits for what has, and forgets the
    /// context.
    pub(crate) fn close(&'static self, ctx: ContextId) {
        let pending = {
            let mut state = self.state.lock();
            state.fail(ctx, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
            self.kick(&mut state);
            state.pending(ctx)
        };
        self.wait_all(pending);
        self.state.lock().forget(ctx);
    }

    /// The error that ended the context's work, if any.
    pub(crate) fn check(&self, ctx: ContextId) -> Result<()> {
        self.state.lock().check(ctx)
    }

    /// Adds a lane; one that is not `blocking` is exempt from the rule of the legacy default
    /// stream.
    pub(crate) fn add_lane(
        &self,
        ctx: ContextId,
        lane: Lane,
        blocking: bool,
        urgent: bool,
    ) -> Result<()> {
        self.state.lock().add_lane(ctx, lane, blocking, urgent)
    }

    /// Makes a lane one of a green context's; its default one waits for the blocking ones there and
    /// they for it.
    pub(crate) fn join(&self, lane: Lane, green: ObjectId, is_default: bool) -> Result<()> {
        self.state.lock().join(lane, green, is_default)
    }

    /// Removes a lane once the work in it is done; does not wait for that.
    pub(crate) fn remove_lane(&self, lane: Lane) -> Result<()> {
        self.state.lock().remove_lane(lane)
    }

    /// Queues `work` behind all that is in the lane and behind `after`. Waits, as other drivers do,
    /// while the lane holds too much.
    pub(crate) fn submit(
        &'static self,
        ctx: ContextId,
        lane: Lane,
        work: Work,
        after: Option<Ticket>,
    ) -> Result<Ticket> {
        let mut state = self.with_place(lane);
        let (ticket, runnable) = self.place(&mut state, ctx, lane, work, after)?;
        if let Some(mut node) = runnable {
            if node.work.is_instant() {
                // Nothing is before it and it takes no longer than handing it over would.
                match node.work.run() {
                    Progress::Waiting => state.poll_later(lane, node),
                    Progress::Done | Progress::Failed(_) => state.finish(lane),
                }
            } else {
                state.enqueue_ready(lane, node);
            }
        }
        self.kick(&mut state);
        Ok(ticket)
    }

    /// As [`Scheduler::submit`], but if nothing is before the work, it is done when this returns.
    pub(crate) fn submit_or_run(
        &'static self,
        ctx: ContextId,
        lane: Lane,
        work: Work,
    ) -> Result<()> {
        let mut state = self.with_place(lane);
        let (_, runnable) = self.place(&mut state, ctx, lane, work, None)?;
        if let Some(node) = runnable {
            self.run_placed(&mut state, lane, node);
        }
        self.kick(&mut state);
        Ok(())
    }

    /// Gives work its place in the lane. Work that has nothing before it comes back, for the caller
    /// to run or to make ready. An error says that there is no thread that would run it.
    fn place(
        &'static self,
        state: &mut State,
        ctx: ContextId,
        lane: Lane,
        work: Work,
        after: Option<Ticket>,
    ) -> Result<(Ticket, Option<Node>)> {
        self.need_executor(state)?;
        state.place(ctx, lane, work, after)
    }

    /// Waits while the lane holds too much.
    fn with_place(&'static self, lane: Lane) -> MutexGuard<'static, State> {
        let state = self.state.lock();
        let Some(before) = state.must_wait_for(lane, self.most_queued) else { return state };
        drop(state);
        self.wait(before);
        self.state.lock()
    }

    /// Runs, on this thread, what nothing is before.
    fn run_placed(&'static self, state: &mut MutexGuard<'static, State>, lane: Lane, node: Node) {
        state.set_phase(lane, Phase::Running);
        if self.run_node(state, lane, node) {
            state.advance(lane);
        }
    }

    /// Runs `work` in the lane's order and returns when it is done: on this thread, if nothing is
    /// before it.
    pub(crate) fn run(&'static self, ctx: ContextId, lane: Lane, work: Work) -> Result<()> {
        let mut state = self.state.lock();
        let (ticket, runnable) = self.place(&mut state, ctx, lane, work, None)?;
        if let Some(node) = runnable {
            self.run_placed(&mut state, lane, node);
            self.kick(&mut state);
            if state.is_done(ticket) {
                return state.check(ctx);
            }
        }
        self.kick(&mut state);
        drop(state);
        self.wait(ticket);
        self.check(ctx)
    }

    /// Whether the work is done.
    pub(crate) fn is_done(&self, ticket: Ticket) -> bool {
        self.state.lock().is_done(ticket)
    }

    /// Waits until the work is done, or dropped because its context failed.
    pub(crate) fn wait(&self, ticket: Ticket) {
        let signal = {
            let mut state = self.state.lock();
            if state.is_done(ticket) {
                return;
            }
            let signal = Arc::new(Signal::new());
            state.add_waiter(ticket, Waiter::Thread(signal.clone()));
            signal
        };
        signal.wait();
    }

    /// Waits for all of them.
    pub(crate) fn wait_all(&self, tickets: Vec<Ticket>) {
        for ticket in tickets {
            self.wait(ticket);
        }
    }

    /// Everything that a wait for `lane` has to wait for. Waiting for the legacy default stream is
    /// waiting for the blocking ones too.
    pub(crate) fn lane_pending(&self, ctx: ContextId, lane: Lane) -> Result<Vec<Ticket>> {
        self.state.lock().lane_pending(ctx, lane)
    }

    /// The lanes of a context.
    pub(crate) fn lanes(&self, ctx: ContextId) -> Vec<Lane> {
        self.state.lock().lanes(ctx)
    }

    /// Work of the context that is not done.
    pub(crate) fn pending(&self, ctx: ContextId) -> Vec<Ticket> {
        self.state.lock().pending(ctx)
    }
}

/// Wakes one waiting thread of the program.
struct Signal {
    done: AtomicBool,
    thread: Thread,
}

impl Signal {
    fn new() -> Signal {
        Signal { done: AtomicBool::new(false), thread: std::thread::current() }
    }

    fn raise(&self) {
        self.done.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn wait(&self) {
        spin_until(|| self.done.load(Ordering::Acquire));
        while !self.done.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}

/// How long a thread stays awake for what it expects soon.
const SPIN: Duration = Duration::from_micros(30);

/// Looks for something again and again for a short time, letting other threads run in between.
/// Tells whether it came.
fn spin_until(mut came: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if came() {
            return true;
        }
        if start.elapsed() > SPIN {
            return false;
        }
        std::thread::yield_now();
    }
}
