//! Frees of stream-ordered memory that copies may still use for which this process keeps streams
//! waiting: the server hears of them behind these copies.

use std::sync::atomic::{AtomicBool, Ordering};

use outboard_front::backend::{ContextId, DevicePtr, Result, StreamId};
use outboard_wire::messages as msg;
use parking_lot::Mutex;

use super::Session;

/// A free that the server has not heard of.
#[derive(Debug, Clone, Copy)]
struct Free {
    ctx: ContextId,
    stream: StreamId,
    address: DevicePtr,
}

/// Those of a session.
#[derive(Debug, Default)]
pub(crate) struct PostponedFrees {
    frees: Mutex<Vec<Free>>,
    any: AtomicBool,
}

impl PostponedFrees {
    fn add(&self, free: Free) {
        let mut frees = self.frees.lock();
        frees.push(free);
        self.any.store(true, Ordering::Release);
    }

    /// Takes those that are as wanted.
    fn take(&self, is_wanted: impl Fn(&Free) -> bool) -> Vec<Free> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut frees = self.frees.lock();
        let taken = frees.extract_if(.., |free| is_wanted(free)).collect();
        self.any.store(!frees.is_empty(), Ordering::Release);
        taken
    }
}

impl Session {
    /// Has the server free stream-ordered memory.
    pub(crate) fn free_in_order(
        &self,
        ctx: ContextId,
        address: DevicePtr,
        stream: StreamId,
    ) -> Result<()> {
        self.reuse.frees(ctx, stream);
        let free = Free { ctx, stream, address };
        if self.holds.is_any_held() {
            self.postponed.add(free);
            return Ok(());
        }
        self.free_what_was_postponed();
        self.post_free(free)
    }

    fn post_free(&self, Free { ctx, stream, address }: Free) -> Result<()> {
        self.post_to(ctx, stream, &msg::MemoryFreeAsync { address, stream })
    }

    /// Tells the server of what was postponed, if no stream is kept waiting any more.
    pub(super) fn free_what_was_postponed(&self) {
        if !self.holds.is_any_held() {
            self.post_frees(self.postponed.take(|_| true));
        }
    }

    /// Without a connection there is nothing to free.
    fn post_frees(&self, frees: Vec<Free>) {
        for free in frees {
            let _ = self.post_free(free);
        }
    }

    /// A stream is about to be destroyed, and what was postponed in it cannot be.
    pub(crate) fn free_what_was_postponed_in(
        &self,
        ctx: ContextId,
        stream: StreamId,
        synchronize: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let frees = self.postponed.take(|free| (free.ctx, free.stream) == (ctx, stream));
        if frees.is_empty() {
            return Ok(());
        }
        let synchronized = synchronize();
        self.post_frees(frees);
        synchronized
    }

    /// Waits for the contexts in which frees were postponed, and makes these. Whether there were
    /// any.
    pub(crate) fn wait_for_what_was_postponed(&self) -> bool {
        let frees = self.postponed.take(|_| true);
        let any = !frees.is_empty();
        for free in frees {
            if !self.progress.is_stream_idle(free.ctx, free.stream) {
                let message = msg::StreamSynchronize { stream: free.stream };
                // A fault is no reason to keep the memory.
                let _ = self.call_idle(free.ctx, &message);
            }
            let _ = self.post_free(free);
        }
        any
    }

    /// A context ends, and its memory with it.
    pub(crate) fn forget_what_was_postponed_in(&self, ctx: ContextId) {
        self.postponed.take(|free| free.ctx == ctx);
    }

    /// Whether copies that are queued may use memory only later: the driver does not know of them
    /// yet.
    pub(crate) fn may_use_memory_later(&self) -> bool {
        self.holds.is_any_held()
            || self.copies.are_any_under_way()
            || self.has_copied_over_links.load(Ordering::Relaxed)
    }

    /// The worker is told of its half of a copy over a link.
    pub(crate) fn copies_over_a_link(&self) {
        self.has_copied_over_links.store(true, Ordering::Relaxed);
    }
}
