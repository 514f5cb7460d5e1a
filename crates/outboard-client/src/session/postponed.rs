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

/// Those of a session. Each stays here until the server is told, so that a thread that lacks memory
/// finds it.
#[derive(Debug, Default)]
pub(super) struct PostponedFrees {
    listed: Mutex<Listed>,
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct Listed {
    /// How many there have been.
    count: u64,
    /// With the number of each.
    frees: Vec<(u64, Free)>,
}

impl PostponedFrees {
    fn add(&self, free: Free) {
        let mut listed = self.listed.lock();
        listed.count += 1;
        let number = listed.count;
        listed.frees.push((number, free));
        self.any.store(true, Ordering::Release);
    }

    fn all(&self) -> Vec<(u64, Free)> {
        if self.any.load(Ordering::Acquire) { self.listed.lock().frees.clone() } else { Vec::new() }
    }

    /// Takes those that are as wanted, and has `tell` the server told of each.
    fn end(&self, is_wanted: impl Fn(u64, &Free) -> bool, tell: impl FnMut(Free)) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut listed = self.listed.lock();
        let is_wanted = |(number, free): &mut (u64, Free)| is_wanted(*number, free);
        listed.frees.extract_if(.., is_wanted).map(|(_, free)| free).for_each(tell);
        self.any.store(!listed.frees.is_empty(), Ordering::Release);
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
        let posted = self.post_to(ctx, stream, &msg::MemoryFreeAsync { address, stream });
        self.given_back.told();
        posted
    }

    /// Tells the server of what was postponed, if no stream is kept waiting any more.
    pub(super) fn free_what_was_postponed(&self) {
        if !self.holds.is_any_held() {
            self.end_postponed(|_, _| true);
        }
    }

    /// Without a connection there is nothing to free.
    fn end_postponed(&self, is_wanted: impl Fn(u64, &Free) -> bool) {
        self.postponed.end(is_wanted, |free| {
            let _ = self.post_free(free);
        });
    }

    /// A stream is about to be destroyed, and what was postponed in it cannot be.
    pub(crate) fn free_what_was_postponed_in(
        &self,
        ctx: ContextId,
        stream: StreamId,
        synchronize: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let is_of = |free: &Free| (free.ctx, free.stream) == (ctx, stream);
        if !self.postponed.all().iter().any(|(_, free)| is_of(free)) {
            return Ok(());
        }
        let synchronized = synchronize();
        self.end_postponed(|_, free| is_of(free));
        synchronized
    }

    /// Waits for the streams in which frees were postponed, and makes these.
    pub(crate) fn wait_for_what_was_postponed(&self) {
        for (number, Free { ctx, stream, .. }) in self.postponed.all() {
            if !self.progress.is_stream_idle(ctx, stream) {
                // A fault is no reason to keep the memory.
                let _ = self.call_plainly(ctx, &msg::StreamSynchronize { stream });
            }
            self.end_postponed(|other, _| other == number);
        }
    }

    /// A context ends, and its memory with it.
    pub(crate) fn forget_what_was_postponed_in(&self, ctx: ContextId) {
        self.postponed.end(|_, free| free.ctx == ctx, |_| ());
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
