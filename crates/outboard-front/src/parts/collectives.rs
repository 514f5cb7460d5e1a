//! Communicators of NCCL.

mod running;
mod shapes;

use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use outboard_wire::collectives::{members, membership};
use parking_lot::Mutex;

use crate::backend::{ContextId, ObjectId};
use crate::handles::{Kind, Table};
use crate::parts::context::Context;

pub(crate) use running::{Done, Running};
pub(crate) use shapes::{Shape, Shapes};

/// `ncclSuccess`.
const SUCCESS: u32 = 0;

/// A rank of a communicator.
pub(crate) struct Comm {
    pub(crate) handle: u64,
    pub(crate) ctx: ContextId,
    pub(crate) context: &'static Context,
    /// Calls return when they are done, and not before.
    pub(crate) blocking: bool,
    /// Rank and ranks, once they are known.
    members: AtomicU64,
    /// What `ncclCommGetAsyncError` gives.
    state: AtomicU32,
    sentence: Mutex<String>,
    /// The program has aborted it.
    pub(crate) aborted: AtomicBool,
    pub(crate) shapes: Shapes,
    /// Groups that were posted since the program last waited for them.
    ahead: AtomicU32,
    /// The graph into which its last collective was captured, and the node there.
    pub(crate) captured: Mutex<Option<(ObjectId, u64)>>,
}

/// So many groups of a communicator may be posted before the program waits for them. The driver
/// takes about a thousand launches; then it blocks, and with it the worker, although other ranks of
/// the process have yet to come.
const MOST_AHEAD: u32 = 512;

impl Comm {
    pub(crate) fn new(
        handle: u64,
        (ctx, context): (ContextId, &'static Context),
        (rank, ranks): (i32, i32),
        blocking: bool,
    ) -> Comm {
        Comm {
            handle,
            ctx,
            context,
            blocking,
            members: AtomicU64::new(membership(rank, ranks)),
            state: AtomicU32::new(SUCCESS),
            sentence: Mutex::default(),
            aborted: AtomicBool::new(false),
            shapes: Shapes::default(),
            ahead: AtomicU32::new(0),
            captured: Mutex::default(),
        }
    }

    /// A group of this communicator alone has been posted; whether the program has to wait now.
    pub(crate) fn is_too_far_ahead(&self) -> bool {
        let is_too_far = self.ahead.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_AHEAD;
        if is_too_far {
            self.ahead.store(0, Ordering::Relaxed);
        }
        is_too_far
    }

    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }

    /// Rank, and how many there are.
    pub(crate) fn members(&self) -> (i32, i32) {
        members(self.members.load(Ordering::Acquire))
    }

    /// The server has told rank and ranks.
    pub(crate) fn is_member(&self, membership: u64) {
        self.members.store(membership, Ordering::Release);
    }

    /// Its asynchronous error, an `ncclResult_t`.
    pub(crate) fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// The sentence that belongs to the error.
    pub(crate) fn sentence(&self) -> String {
        self.sentence.lock().clone()
    }

    /// Its asynchronous error is this from now on.
    pub(crate) fn set(&self, state: u32, sentence: &str) {
        sentence.clone_into(&mut self.sentence.lock());
        self.state.store(state, Ordering::Release);
    }
}

/// The communicators of a process.
pub(crate) struct Communicators {
    pub(crate) table: Table<Comm>,
    pub(crate) errors: Errors,
    /// How many communicators the process has made.
    pub(crate) made: AtomicU64,
    /// Which release of NCCL a server has, by the place of the server.
    pub(crate) releases: Mutex<Vec<(usize, u32)>>,
    /// Ends of communicators that nobody has waited for, and when they began.
    pub(crate) ending: Mutex<Vec<(Running, Instant)>>,
}

impl Communicators {
    pub(crate) const fn new() -> Communicators {
        Communicators {
            table: Table::new(Kind::Communicator),
            errors: Errors(Mutex::new(VecDeque::new())),
            made: AtomicU64::new(0),
            releases: Mutex::new(Vec::new()),
            ending: Mutex::new(Vec::new()),
        }
    }

    /// The communicator of that name.
    pub(crate) fn named(&self, comm: ObjectId) -> Option<Arc<Comm>> {
        self.table.get(comm.0)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

/// How many sentences are kept: the program may still read an earlier one.
const KEPT: usize = 64;

/// The last sentences that `ncclGetLastError` gives.
pub(crate) struct Errors(Mutex<VecDeque<CString>>);

impl Errors {
    /// This is the last one now.
    pub(crate) fn add(&self, sentence: &str) {
        let Ok(sentence) = CString::new(sentence.replace('\0', "?")) else { return };
        let mut kept = self.0.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(sentence);
    }

    /// The last one, which stays where it is for some time.
    pub(crate) fn last(&self) -> Option<*const std::ffi::c_char> {
        self.0.lock().back().map(|sentence| sentence.as_ptr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_kept_while_others_come() {
        let errors = Errors(Mutex::default());
        assert!(errors.last().is_none());
        errors.add("first\0one");
        let first = errors.last().unwrap();
        for number in 1..KEPT {
            errors.add(&number.to_string());
        }
        // SAFETY: as many are kept.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(first) }.to_str(), Ok("first?one"));
        assert_ne!(errors.last(), Some(first));
        errors.add("one more");
        assert_eq!(errors.0.lock().len(), KEPT);
    }
}
