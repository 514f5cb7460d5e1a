//! Communicators that end. NCCL waits there until those of other ranks on the same machine end as
//! well, unless they are of its own process. Here the ranks of one process may be on several
//! servers, and the program may end them one after the other: so only the end of the last one waits
//! for all.

use std::time::{Duration, Instant};

use outboard_wire::collectives::CommCall;

use super::Outcome;
use super::group::{Entry, by_server};
use super::running::{self, Running};
use crate::backend::Backend;
use crate::process::Process;

/// So long the last one waits. What is not over by then ends without the program.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether all calls of a group end communicators.
pub(super) fn is_it(entries: &[Entry]) -> bool {
    entries.iter().all(|entry| matches!(entry.call, CommCall::Destroy { .. }))
}

/// Makes these calls.
pub(super) fn run<B: Backend>(process: &'static Process<B>, entries: Vec<Entry>) -> Outcome<()> {
    let mut outcome = Ok(());
    let mut begun = Vec::new();
    for (ctx, entries) in by_server(entries) {
        let calls = entries.into_iter().map(|entry| entry.call).collect();
        match running::begin(process, ctx, calls) {
            Ok(running) => begun.push(running),
            Err(failure) => outcome = outcome.and(Err(failure)),
        }
    }
    for (running, since) in to_wait_for(process, begun) {
        let left = PATIENCE.saturating_sub(since.elapsed());
        let ended = running.wait_for(process, &[], Some(left));
        outcome = outcome.and(ended.map_or(Ok(()), |ended| ended.map(drop)));
    }
    outcome
}

/// Those that end, and since when, if none is left that does not.
fn to_wait_for<B: Backend>(
    process: &'static Process<B>,
    begun: Vec<Running>,
) -> Vec<(Running, Instant)> {
    let mut ending = process.communicators.ending.lock();
    ending.extend(begun.into_iter().map(|running| (running, Instant::now())));
    if process.communicators.count() > 0 {
        return Vec::new();
    }
    std::mem::take(&mut *ending)
}
