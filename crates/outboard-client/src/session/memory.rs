//! Memory in the session's arena.

use std::sync::Arc;

use outboard_front::backend::{ContextId, DevicePtr, Result};
use outboard_wire::messages as msg;

use super::{LOST, Session};
use crate::arena::{Arena, Change, Taken};

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
            Change::Unmapped(block) => self.post_numbered(
                block.ctx,
                &msg::MemoryUnmap { address: block.address, bytes: block.bytes },
            ),
        };
    }

    /// Memory in the arena; `None` if it has no room for it, or there is none.
    pub(crate) fn allocate(&self, ctx: ContextId, bytes: u64) -> Result<Option<DevicePtr>> {
        let Some(arena) = self.arena() else { return Ok(None) };
        if !self.link.is_alive() {
            return Err(LOST);
        }
        self.free_what_is_late(false);
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

    /// Frees an allocation in the arena once what is queued now is done, if there is one at this
    /// address.
    pub(crate) fn free_late(&self, address: DevicePtr) -> bool {
        let Some(arena) = self.arena().filter(|arena| arena.users_of(address).is_some()) else {
            return false;
        };
        arena.free_late([address]);
        self.free_what_is_late(false);
        true
    }

    /// Makes the delayed frees if the contexts are idle, or (`wait`) waits until they are. Whether
    /// there was anything.
    fn free_what_is_late(&self, wait: bool) -> bool {
        let Some(arena) = self.arena() else { return false };
        let Some((late, users)) = arena.take_late() else { return false };
        for ctx in users {
            if self.progress.is_context_idle(ctx) {
                continue;
            }
            if !wait {
                arena.free_late(late);
                return false;
            }
            // A fault is no reason to keep the memory.
            if let Ok((seq, _)) = self.call_idle(ctx, &msg::ContextSynchronize {}) {
                self.progress.context_done(ctx, seq);
            }
        }
        let mut any = false;
        for address in late {
            any |= self.free(address);
        }
        any
    }

    /// Frees an allocation that nothing uses any more, if there is one in the arena.
    pub(crate) fn free(&self, address: DevicePtr) -> bool {
        let freed =
            self.arena().and_then(|arena| arena.free(address, |change| self.send_change(change)));
        if freed.as_ref().is_some_and(|freed| freed.is_unwatched) {
            self.link.run_idle_work();
        }
        freed.is_some()
    }

    /// Gives credit back after it was unused for a while, or when the server asks.
    pub(super) fn watch_what_is_kept(self: &Arc<Session>) {
        let session = Arc::downgrade(self);
        self.link.when_idle(Box::new(move |now| {
            let session = session.upgrade()?;
            session.arena()?.give_back_idle(now, |change| session.send_change(change))
        }));
    }

    /// Gives back all memory that is kept; whether that was any.
    pub(super) fn give_all(&self) -> bool {
        let late = self.free_what_is_late(true) | self.wait_for_what_was_postponed();
        let pooled = self.reuse.give_all(|block| self.give_back(block));
        let blocks =
            self.arena().is_some_and(|arena| arena.give_all(|change| self.send_change(change)));
        late || pooled || blocks
    }
}
