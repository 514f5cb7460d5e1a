//! The streams of a context that may have work: a wait for the whole context is a wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::asked::Part;
use crate::objects::Handle;

/// Streams of a context that are looked at one by one, each until it is done; with more of them in
/// use, a helper waits for the context.
const MOST_STREAMS: usize = 64;

/// The streams of a context that may have work in them.
#[derive(Default)]
pub(super) struct InUse {
    /// With the time at which each was last added.
    pub(super) streams: Vec<(Handle<outboard_abi::CUstream_st>, u64)>,
    /// When a stream was destroyed that had work in it.
    pub(super) lost: u64,
    /// All that was there at this time is done.
    pub(super) done: Arc<AtomicU64>,
}

impl InUse {
    pub(super) fn forget_what_is_done(&mut self) {
        let done = self.done.load(Ordering::Acquire);
        self.streams.retain(|(_, added)| *added > done);
    }

    /// The streams to ask about the whole context; `None` if that cannot be told so.
    pub(super) fn all(&self) -> Option<Vec<Part>> {
        let known =
            self.streams.len() <= MOST_STREAMS && self.lost <= self.done.load(Ordering::Acquire);
        known.then(|| self.streams.iter().map(|(stream, _)| Part::Stream(*stream)).collect())
    }
}

/// To be said when a wait for a whole context has succeeded.
pub(super) struct Done {
    pub(super) of: Arc<AtomicU64>,
    pub(super) time: u64,
}

impl Done {
    pub(super) fn say(self) {
        self.of.fetch_max(self.time, Ordering::AcqRel);
    }
}
