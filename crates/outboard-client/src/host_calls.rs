//! Functions of the program that streams call: queued at the worker under a number, called here
//! when it asks.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, HostCall, Result, StreamId};
use outboard_wire::Reader;
use outboard_wire::request::HOST_CALL;
use parking_lot::{Mutex, MutexGuard};

use crate::graphs::Launch;
use crate::link::Expectation;
use crate::outstanding::Queued;
use crate::pager::Pager;
use crate::progress::Progress;
use crate::requests::Answerer;

/// The functions that have not been called yet.
#[derive(Debug)]
pub(crate) struct HostFunctions {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
    unfinished: Arc<AtomicUsize>,
    progress: Arc<Progress>,
    pager: &'static Pager,
}

#[derive(Debug)]
struct Waiting {
    ctx: ContextId,
    call: HostCall,
    queued: Queued,
    /// Requests are heard while there is one.
    _expected: Expectation,
    _unfinished: Unfinished,
    /// The launch of a graph before it.
    _launch: Option<Launch>,
}

/// Counts a function that has not returned yet.
#[derive(Debug)]
struct Unfinished(Arc<AtomicUsize>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HostFunctions {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock()
    }

    /// The functions of a session about whose streams so much is known, and which may touch what
    /// the pager tracks.
    pub(crate) fn new(progress: Arc<Progress>, pager: &'static Pager) -> HostFunctions {
        HostFunctions {
            last: AtomicU64::new(0),
            waiting: Mutex::default(),
            unfinished: Arc::default(),
            progress,
            pager,
        }
    }

    /// Takes in a function that is about to be queued in a stream; the number by which the worker
    /// asks for its call. Until then `launch` is under way.
    pub(crate) fn add(
        &self,
        (ctx, stream): (ContextId, StreamId),
        call: HostCall,
        expected: Expectation,
        launch: Option<Launch>,
    ) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.unfinished.fetch_add(1, Ordering::AcqRel);
        let unfinished = Unfinished(Arc::clone(&self.unfinished));
        let queued = self.progress.outstanding().begin(ctx, stream);
        let waiting = Waiting {
            ctx,
            call,
            queued,
            _expected: expected,
            _unfinished: unfinished,
            _launch: launch,
        };
        self.waiting().insert(number, waiting);
        number
    }

    /// A function was queued by command `seq`.
    pub(crate) fn queued(&self, number: u64, seq: u64) {
        if let Some(waiting) = self.waiting().get(&number) {
            waiting.queued.is(seq);
        }
    }

    /// Whether any function has not been called yet, or runs.
    pub(crate) fn are_waiting(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) > 0
    }

    /// Forgets a function: queueing it failed.
    pub(crate) fn remove(&self, number: u64) {
        self.waiting().remove(&number);
    }

    /// Forgets the functions of a context that has ended.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.waiting().retain(|_, waiting| waiting.ctx != ctx);
    }
}

impl Answerer for HostFunctions {
    fn expects(&self, kind: u32, ctx: ContextId) -> bool {
        kind == HOST_CALL && self.waiting().values().any(|waiting| waiting.ctx == ctx)
    }

    fn answer(&self, kind: u32, ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        if kind != HOST_CALL {
            return None;
        }
        let (Ok(number), Ok(status)) = (body.get::<u64>(), body.get::<u32>()) else {
            return Some(Err(CUresult::CUDA_ERROR_UNKNOWN));
        };
        let waiting = {
            let mut all = self.waiting();
            if all.get(&number).is_some_and(|waiting| waiting.ctx != ctx) {
                None
            } else {
                all.remove(&number)
            }
        };
        // One that is not known was of a context that has ended.
        let Some(Waiting { call, queued, _expected, _unfinished, _launch, .. }) = waiting else {
            return Some(Ok(Vec::new()));
        };
        let (ctx, stream, seq) = queued.place();
        let called = queued.work().use_it(|| {
            // The function may rely on the end of the work before it.
            if seq < u64::MAX {
                self.progress.stream_seen(ctx, stream, seq);
            }
            self.pager.around_function(|| call.run(CUresult(status)));
        });
        Some(called.map(|()| Vec::new()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE))
    }
}
