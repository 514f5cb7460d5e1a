//! Memory that host and device both touch: mapped and managed. The pager moves its bytes; this
//! module gives it the operations that move them, and calls it for the program's calls.

mod along;
mod common;
mod copies;
mod mapped;
mod mover;

use std::sync::atomic::Ordering;
use std::time::Instant;

use outboard_front::backend::{ContextId, Result, StreamId, UnifiedPtr};

use super::Remote;
use crate::link::staged::pause_after;
use crate::pager::{Brought, COMMON, Done, Tracked};

pub(super) use along::Along;
pub(super) use copies::TouchedCopy;

/// Most work that is queued while streams are held, of drivers that take about a thousand kernels.
const MOST_BEHIND_HOLDS: u32 = 512;

impl Remote {
    /// Queues work of the device that may use memory which the program touches too.
    #[inline]
    pub(super) fn work(
        &self,
        ctx: ContextId,
        stream: StreamId,
        queue: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if !self.pager.is_active() {
            return queue();
        }
        let queuing = self.pager.before_work(ctx, stream)?;
        queue()?;
        self.pager.after_work(ctx, stream);
        drop(queuing);
        self.keep_streams_from_filling();
        Ok(())
    }

    /// Before a held stream goes on, the worker is sent what other servers have written, which it
    /// cannot take while it waits for room in a stream: the program waits for the stream before
    /// there is none left, as it would natively.
    #[cold]
    fn keep_streams_from_filling(&self) {
        let Ok(session) = self.session() else { return };
        if !session.holds.is_any_held() {
            self.behind_holds.store(0, Ordering::Relaxed);
            return;
        }
        if self.behind_holds.fetch_add(1, Ordering::Relaxed) < MOST_BEHIND_HOLDS {
            return;
        }
        outboard_front::profile::stalled(|| {
            let _ = session.link().flush();
            let begun = Instant::now();
            while session.holds.is_any_held() && session.link().is_alive() {
                std::thread::sleep(pause_after(begun.elapsed()));
            }
        });
    }

    /// Waits for work of the device.
    #[inline]
    pub(super) fn waited<T>(&self, done: Done, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        if !self.pager.is_active() {
            return wait();
        }
        let begun = self.pager.before_wait(false);
        let result = wait()?;
        self.pager.after_wait(done, &begun, &Brought::default());
        Ok(result)
    }

    /// Waits for work of the device, or asks whether it is done, with a message that may bring
    /// along what the program is likely to touch then.
    #[inline]
    pub(super) fn waited_for(
        &self,
        done: Done,
        ask: bool,
        wait: impl FnOnce(Option<&mut Along>) -> Result<()>,
    ) -> Result<()> {
        if !self.pager.is_active() {
            return wait(None);
        }
        let begun = self.pager.before_wait(true);
        if !begun.brings() {
            wait(None)?;
            self.pager.after_wait(done, &begun, &Brought::default());
            return Ok(());
        }
        let mut along = Along::new(done, ask, &begun);
        wait(Some(&mut along))?;
        self.pager.after_wait(done, &begun, &along.brought());
        Ok(())
    }

    /// A context is about to end.
    pub(super) fn end_shared_memory(&self, ctx: ContextId) {
        for (base, _) in self.host.mapped_in(ctx) {
            self.unmap_host(base, true);
        }
        if self.pager.is_active() {
            COMMON.forget_context(ctx);
        }
        self.pager.remove_context(ctx);
        self.slabs.lock().forget(ctx);
    }

    /// How much of a range the program and the device both use.
    pub(super) fn tracked(&self, address: UnifiedPtr, bytes: u64) -> Tracked {
        self.pager.tracks(&(address..address.saturating_add(bytes)))
    }

    /// Whether any of these addresses is the program's to touch, too.
    #[inline]
    pub(super) fn is_tracked(&self, address: UnifiedPtr, bytes: u64) -> bool {
        self.pager.is_active() && self.tracked(address, bytes) != Tracked::None
    }
}
