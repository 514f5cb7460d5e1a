//! Functions of the program that streams call: queued at the worker under a number, called here when it asks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, HostCall, Result};
use outboard_wire::Reader;
use outboard_wire::request::HOST_CALL;

use crate::graphs::Uses;
use crate::link::Expectation;
use crate::requests::Answerer;

/// The functions that have not been called yet.
#[derive(Debug, Default)]
pub(crate) struct HostFunctions {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, Waiting>>,
    unfinished: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Waiting {
    ctx: ContextId,
    call: HostCall,
    /// Requests are heard while there is one.
    _expected: Expectation,
    _unfinished: Unfinished,
    /// What a launch of a graph before it may ask for.
    _uses: Option<Uses>,
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
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a function in; the number by which the worker asks for its call. Until then `uses` is kept.
    pub(crate) fn add(&self, ctx: ContextId, call: HostCall, expected: Expectation, uses: Option<Uses>) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.unfinished.fetch_add(1, Ordering::AcqRel);
        let unfinished = Unfinished(Arc::clone(&self.unfinished));
        let waiting = Waiting { ctx, call, _expected: expected, _unfinished: unfinished, _uses: uses };
        self.waiting().insert(number, waiting);
        number
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
    fn answer(&self, kind: u32, _ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        if kind != HOST_CALL {
            return None;
        }
        let (Ok(number), Ok(status)) = (body.get::<u64>(), body.get::<u32>()) else {
            return Some(Err(CUresult::CUDA_ERROR_UNKNOWN));
        };
        let waiting = self.waiting().remove(&number);
        // One that is not known was of a context that has ended.
        if let Some(Waiting { call, _expected, _unfinished, .. }) = waiting {
            crate::remote::with_shared_memory(|| call.run(CUresult(status)));
        }
        Some(Ok(Vec::new()))
    }
}
