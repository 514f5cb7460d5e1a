//! The connection, and contexts.

use std::sync::atomic::Ordering;

use outboard_abi::CUresult;
use outboard_front::backend::{CheckpointStep, ContextId, DeviceId, Faults, Result, Statistics};
use outboard_wire::messages as msg;
use outboard_wire::platform::Platform;

use super::Remote;
use crate::pager::Done;
use crate::progress::Progress;
use crate::session::Session;

impl Remote {
    pub(super) fn attach(&self, faults: &'static dyn Faults) {
        let _ = self.faults.set(faults);
    }

    pub(super) fn platform(&'static self) -> Result<Platform> {
        let faults = self.faults.get().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)?;
        let (session, platform) = Session::open(self.server, *faults, &self.pager)?;
        if let Some(window) = session.window() {
            self.pager.keep(window);
        }
        // Kept for good: calls hold it without counting, and in a forked child its threads are
        // gone.
        self.session.store(Box::into_raw(Box::new(session)), Ordering::Release);
        self.pager.connect(Box::new(self));
        self.is_there();
        Ok(platform)
    }

    pub(super) fn checkpoint(
        &self,
        _process: i32,
        _step: CheckpointStep,
        _limit: u32,
    ) -> Result<u32> {
        // A process here has no memory of a device to suspend; the server suspends sessions.
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }

    pub(super) fn all_hidden(&self, devices: usize) {
        crate::session::explain_hidden(devices);
    }

    pub(super) fn context_open(
        &self,
        ctx: ContextId,
        device: DeviceId,
        flags: u32,
        primary: bool,
    ) -> Result<()> {
        let session = self.session()?;
        self.call(ctx, &msg::ContextOpen { device, flags, primary }, |_| ())?;
        session.context_opened(ctx);
        session.reuse().context_opened(ctx, device);
        if let Some(arena) = session.arena() {
            arena.context_opened(ctx, device);
        }
        Ok(())
    }

    pub(super) fn context_close(&self, ctx: ContextId) -> Result<()> {
        self.polled.context_ends(ctx);
        self.crossing.context_ends(ctx);
        self.end_page_locked_memory(ctx);
        self.end_shared_memory(ctx);
        let session = self.session()?;
        session.reuse().end_context(ctx, |block| session.give_back(block));
        session.forget_what_was_postponed_in(ctx);
        let arena = session.arena().map(|arena| (arena, arena.context_ends(ctx)));
        let outcome = if session.link().is_leaving() {
            // A static runtime does this after main. A device that several processes leave at once
            // takes a second.
            self.call(ctx, &msg::ContextLeave {}, |_| ())
        } else {
            self.call(ctx, &msg::ContextClose {}, |_| ())
        };
        session.context_ended(ctx);
        if let Some((arena, blocks)) = arena {
            arena.ended(blocks);
        }
        outcome
    }

    pub(super) fn context_synchronize(&self, ctx: ContextId) -> Result<()> {
        self.waited_for(Done::Context(ctx), false, |along| {
            let idle = |progress: &Progress| progress.is_context_idle(ctx);
            self.wait(ctx, &msg::ContextSynchronize {}, along, idle, |progress, seq| {
                progress.context_done(ctx, seq)
            })
        })
    }

    pub(super) fn statistics(&self) -> Statistics {
        let Some(session) = self.opened() else { return Statistics::Unused {} };
        let mut connection = session.statistics(&self.pager.moved());
        self.messages.tell(&mut connection);
        Statistics::Connection(Box::new(connection))
    }
}
