//! A group that a server has been given, and that may wait there for other ranks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_wire::collectives::CommCall;

use super::{Failure, Outcome, result};
use crate::backend::{Backend, CollectivesDone, ContextId, GroupOutcome, ObjectId};
pub(super) use crate::parts::collectives::Running;
use crate::parts::collectives::{Comm, Done};
use crate::process::Process;

/// How often a thread that waits looks whether it waits for nothing.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the server may take to end what was aborted.
const ABORT: Duration = Duration::from_secs(5);

/// Gives a server calls to make.
pub(super) fn begin<B: Backend>(
    process: &'static Process<B>,
    ctx: ContextId,
    calls: Vec<CommCall>,
) -> Outcome<Running> {
    Running::new(ctx, |then| process.backend.collectives_begin(ctx, calls, then))
}

/// Gives a server calls to make a graph of.
pub(super) fn begin_capture<B: Backend>(
    process: &'static Process<B>,
    ctx: ContextId,
    graph: ObjectId,
    calls: Vec<CommCall>,
) -> Outcome<Running> {
    Running::new(ctx, |then| process.backend.collectives_capture(ctx, graph, calls, then))
}

/// The values of a group that NCCL has made, or why it has not.
pub(super) fn values(outcome: Result<GroupOutcome, CUresult>) -> Outcome<Vec<u64>> {
    let outcome = outcome?;
    match outcome.status {
        result::SUCCESS => Ok(outcome.values),
        failed => Err(Failure::new(failed, outcome.failure)),
    }
}

impl Running {
    fn new(
        ctx: ContextId,
        begin: impl FnOnce(CollectivesDone) -> Result<(), CUresult>,
    ) -> Outcome<Running> {
        let done = Arc::new(Done::default());
        let told = Arc::clone(&done);
        begin(CollectivesDone::new(move |outcome| {
            *told.outcome.lock() = Some(outcome);
            told.told.notify_all();
        }))?;
        Ok(Running { ctx, done })
    }

    /// As [`Running::wait_for`], with a failure if the limit passes.
    pub(super) fn wait<B: Backend>(
        &self,
        process: &'static Process<B>,
        comms: &[Arc<Comm>],
        limit: Option<Duration>,
    ) -> Outcome<Vec<u64>> {
        let outcome = self.wait_for(process, comms, limit);
        outcome.unwrap_or_else(|| Err(late(limit.unwrap_or_default())))
    }

    /// Waits for the outcome: until the server is lost, or one of its communicators was aborted.
    /// `None` once the limit has passed, if there is one.
    pub(super) fn wait_for<B: Backend>(
        &self,
        process: &'static Process<B>,
        comms: &[Arc<Comm>],
        limit: Option<Duration>,
    ) -> Option<Outcome<Vec<u64>>> {
        crate::profile::waited(|| {
            let begun = Instant::now();
            let mut aborted = None;
            let mut outcome = self.done.outcome.lock();
            loop {
                if let Some(outcome) = outcome.take() {
                    return Some(values(outcome));
                }
                if !self.done.told.wait_for(&mut outcome, LOOK_EVERY).timed_out() {
                    continue;
                }
                if let Err(lost) = process.backend.collectives_lost(self.ctx) {
                    return Some(Err(lost.into()));
                }
                if limit.is_some_and(|limit| begun.elapsed() >= limit) {
                    return None;
                }
                if comms.iter().any(|comm| comm.aborted.load(Ordering::Acquire)) {
                    let since = *aborted.get_or_insert_with(Instant::now);
                    if since.elapsed() >= ABORT {
                        let sentence = "the communicator was aborted";
                        return Some(Err(Failure::new(result::INTERNAL_ERROR, sentence)));
                    }
                }
            }
        })
    }
}

fn late(limit: Duration) -> Failure {
    Failure::new(
        result::SYSTEM_ERROR,
        format!(
            "not all ranks of the communicator have come within {} seconds (OUTBOARD_NCCL_INIT_TIMEOUT): \
             see whether every rank has started, has the same unique id and number of ranks, and whether their servers reach each other",
            limit.as_secs()
        ),
    )
}
