//! Replies to commands, and whom they are for.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::error::LinkError;
use super::locks::lock;

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The command's number in the session's order.
    pub seq: u64,
    /// A CUresult.
    pub status: u32,
    /// What the command returns, encoded.
    pub payload: Vec<u8>,
    /// The string of bytes that it returns is where the caller wants it, and not in `payload`.
    pub landed: bool,
}

/// Is given a call's reply, on whichever thread reads, or the reason why there is none: it must be
/// quick and must not use the link.
pub(crate) type Then = Box<dyn FnOnce(Result<Reply, LinkError>) + Send>;

/// Whom a call's reply is for.
pub(super) enum Recipient {
    /// A thread that waits for it.
    Thread(Arc<Slot>),
    /// No thread waits.
    Then(Then),
}

impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.thread().is_some() { "Thread" } else { "Then" })
    }
}

impl Recipient {
    pub(super) fn deliver(self, reply: Result<Reply, LinkError>) {
        match self {
            Recipient::Thread(slot) => slot.deliver(reply),
            // This thread reads for others: a panic here must not leave them without a reader.
            Recipient::Then(then) => drop(catch_unwind(AssertUnwindSafe(|| then(reply)))),
        }
    }

    pub(super) fn thread(&self) -> Option<&Slot> {
        match self {
            Recipient::Thread(slot) => Some(slot),
            Recipient::Then(_) => None,
        }
    }
}

/// Where one call's reply arrives.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<ReplyState>,
    changed: Condvar,
    answered: AtomicBool,
}

#[derive(Debug, Default)]
struct ReplyState {
    reply: Option<Result<Reply, LinkError>>,
    /// The thread should try to become the leader.
    nudged: bool,
    /// The thread sleeps: to notify a thread that does not sleep would be a useless system call.
    asleep: bool,
}

impl Slot {
    pub(super) fn deliver(&self, reply: Result<Reply, LinkError>) {
        let mut state = lock(&self.state);
        state.reply = Some(reply);
        self.answered.store(true, Ordering::Release);
        self.wake(state);
    }

    pub(super) fn nudge(&self) {
        let mut state = lock(&self.state);
        state.nudged = true;
        self.wake(state);
    }

    fn wake(&self, state: MutexGuard<'_, ReplyState>) {
        let asleep = state.asleep;
        drop(state);
        if asleep {
            self.changed.notify_one();
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    pub(super) fn take(&self) -> Option<Result<Reply, LinkError>> {
        if self.is_answered() { lock(&self.state).reply.take() } else { None }
    }

    /// Blocks until there is a reply or a nudge, and uses up the nudge.
    pub(super) fn block(&self) {
        let mut state = lock(&self.state);
        while state.reply.is_none() && !state.nudged {
            state.asleep = true;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        (state.nudged, state.asleep) = (false, false);
    }
}
