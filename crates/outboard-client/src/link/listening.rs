//! How many things are under way that may make the worker ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use outboard_transport::Patience;

use super::request_threads::RequestThreads;

/// How many things are under way that may make the worker ask.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) expected: AtomicUsize,
    pub(super) started: AtomicBool,
    pub(super) threads: Arc<RequestThreads>,
}

impl Listening {
    /// Whether anything is expected.
    pub(super) fn is_on(&self) -> bool {
        self.expected.load(Ordering::Acquire) > 0
    }

    /// Nothing is expected yet. `patience` is for how long idle threads poll before they sleep.
    pub(super) fn new(patience: Patience) -> Listening {
        Listening {
            expected: AtomicUsize::new(0),
            started: AtomicBool::new(false),
            threads: RequestThreads::new(patience),
        }
    }

    /// The link is gone: the threads end.
    pub(super) fn lose(&self) {
        self.threads.end();
    }
}
