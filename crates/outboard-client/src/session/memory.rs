//! Memory in the session's arena.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outboard_front::backend::{ContextId, DevicePtr, Result};
use outboard_wire::messages as msg;

use super::{LOST, Session};
use crate::arena::{Arena, Block, Change, Freed, Taken};

/// How often the server was given memory back.
///
/// Memory stays in the list in which it is kept until the server is told, and counts here before
/// the list's lock is released: a thread that finds a list empty finds the count changed.
#[derive(Debug, Default)]
pub(super) struct GivenBack(AtomicU64);

impl GivenBack {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// The server was told once more.
    pub(super) fn told(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Session {
    /// The addresses that this process may choose, if the server leaves it any.
    pub(crate) fn arena(&self) -> Option<&Arena> {
        self.arena.as_ref()
    }

    /// Tells the server of a change. Without a connection there is nothing to tell.
    fn send_change(&self, change: Change) {
        let _ = match change {
            Change::Opened(ctx, address, bytes) => {
                self.post_numbered(ctx, &msg::MemoryPart { address, bytes, open: true })
            }
            Change::Closed(ctx, address, bytes) => {
                self.post_numbered(ctx, &msg::MemoryPart { address, bytes, open: false })
            }
            Change::Unmapped(block) => {
                let Block { ctx, address, bytes } = block;
                let posted = self.post_numbered(ctx, &msg::MemoryUnmap { address, bytes });
                self.given_back.told();
                posted
            }
        };
    }

    /// Memory in the arena; `None` if it has no room for it, or there is none.
    pub(crate) fn allocate(&self, ctx: ContextId, bytes: u64) -> Result<Option<DevicePtr>> {
        let Some(arena) = self.arena() else { return Ok(None) };
        if !self.link.is_alive() {
            return Err(LOST);
        }
        self.free_what_is_late();
        match arena.take(ctx, bytes, |change| self.send_change(change)) {
            Taken::Memory(address) => Ok(Some(address)),
            Taken::Nothing => Ok(None),
            Taken::Block(block) => {
                match self
                    .call_idle(ctx, &msg::MemoryMap { address: block.address, bytes: block.bytes })
                {
                    Ok(_) => {
                        Ok(Some(arena.mapped(block, bytes, |change| self.send_change(change))))
                    }
                    Err(error) => {
                        arena.refused(block);
                        Err(error)
                    }
                }
            }
        }
    }

    /// How often memory was given back.
    pub(crate) fn times_given_back(&self) -> u64 {
        self.given_back.count()
    }

    /// Frees an allocation in the arena once what is queued now is done, if there is one at this
    /// address.
    pub(crate) fn free_late(&self, address: DevicePtr) -> bool {
        let Some(arena) = self.arena().filter(|arena| arena.users_of(address).is_some()) else {
            return false;
        };
        arena.free_late(address);
        self.free_what_is_late();
        true
    }

    /// Makes the delayed frees if the contexts are idle.
    fn free_what_is_late(&self) {
        let Some((until, users)) = self.arena().and_then(Arena::late) else { return };
        if users.into_iter().all(|ctx| self.progress.is_context_idle(ctx)) {
            self.free_noted(until);
        }
    }

    /// Makes the delayed frees once the contexts are idle.
    fn wait_for_what_is_late(&self) {
        let Some((until, users)) = self.arena().and_then(Arena::late) else { return };
        for ctx in users {
            if self.progress.is_context_idle(ctx) {
                continue;
            }
            // A fault is no reason to keep the memory.
            if let Ok((seq, _)) = self.call_plainly(ctx, &msg::ContextSynchronize {}) {
                self.progress.context_done(ctx, seq);
            }
        }
        self.free_noted(until);
    }

    fn free_noted(&self, until: u64) {
        let freed =
            self.arena().map(|arena| arena.free_noted(until, |change| self.send_change(change)));
        self.watch_freed(freed.as_ref());
    }

    /// Frees an allocation that nothing uses any more, if there is one in the arena.
    pub(crate) fn free(&self, address: DevicePtr) -> bool {
        let freed =
            self.arena().and_then(|arena| arena.free(address, |change| self.send_change(change)));
        self.watch_freed(freed.as_ref());
        freed.is_some()
    }

    fn watch_freed(&self, freed: Option<&Freed>) {
        if freed.is_some_and(|freed| freed.is_unwatched) {
            self.link.run_idle_work();
        }
    }

    /// Gives credit back after it was unused for a while, or when the server asks.
    pub(super) fn watch_what_is_kept(self: &Arc<Session>) {
        let session = Arc::downgrade(self);
        self.link.when_idle(Box::new(move |now| {
            let session = session.upgrade()?;
            session.arena()?.give_back_idle(now, |change| session.send_change(change))
        }));
    }

    /// Gives back all memory that is kept; whether any has been given back since this count, by
    /// whichever thread.
    pub(super) fn give_all_since(&self, before: u64) -> bool {
        self.wait_for_what_is_late();
        self.reuse.give_all(|block| self.give_back(block));
        self.wait_for_what_was_postponed();
        if let Some(arena) = self.arena() {
            arena.give_all(|change| self.send_change(change));
        }
        self.given_back.count() != before
    }
}
