//! Events, and the times between them.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, Result, StreamId};
use outboard_wire::messages as msg;

use super::{Remote, succeed};
use crate::pager::Done;
use crate::progress::Progress;
use crate::session::LOST;

/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;

impl Remote {
    pub(super) fn event_create(&self, ctx: ContextId, id: ObjectId, flags: u32) -> Result<()> {
        if flags & INTERPROCESS != 0 {
            self.session()?.progress().share_event(id);
        }
        if flags & DISABLE_TIMING == 0 {
            self.session()?.times().made(id);
        }
        self.post(ctx, &msg::EventCreate { event: id, flags })
    }

    pub(super) fn event_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        if self.pager.is_active() {
            self.pager.forget(id);
        }
        let session = self.session()?;
        session.progress().forget_event(id);
        session.times().forget(id);
        self.post(ctx, &msg::EventDestroy { event: id })
    }

    pub(super) fn event_record(
        &self,
        ctx: ContextId,
        id: ObjectId,
        stream: StreamId,
        flags: u32,
    ) -> Result<()> {
        let session = self.session()?;
        let message = msg::EventRecord { event: id, stream, flags };
        let post = |idle| match idle {
            true => session.post_numbered(ctx, &message),
            false => session.post_counted(ctx, stream, &message),
        };
        session.progress().record(id, ctx, stream, post)?;
        if self.pager.is_active() {
            self.pager.recorded(id, ctx, stream);
        }
        Ok(())
    }

    pub(super) fn event_synchronize(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.waited_for(Done::Event(id), false, |along| {
            let happened = |progress: &Progress| progress.has_happened(id);
            let message = msg::EventSynchronize { event: id };
            self.wait(ctx, &message, along, happened, |progress, seq| progress.event_done(id, seq))
        })
    }

    pub(super) fn event_query(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.waited_for(Done::Event(id), true, |along| {
            let happened = |progress: &Progress| progress.has_happened(id);
            if let Some(seq) = self.learn(ctx, &msg::EventQuery { event: id }, along, happened)? {
                self.session()?.progress().event_seen(id, seq);
            }
            Ok(())
        })
    }

    /// Milliseconds between two events.
    pub(super) fn event_elapsed(
        &self,
        ctx: ContextId,
        start: ObjectId,
        end: ObjectId,
    ) -> Result<f32> {
        let session = self.session()?;
        let question = match session.times().find((start, end), session.progress()) {
            Ok(milliseconds) if session.link().is_alive() => return Ok(milliseconds),
            Ok(_) => return Err(LOST),
            Err(question) => question,
        };
        let message = msg::EventsElapsed { pairs: question.pairs.clone() };
        let first =
            |times: &[(u32, f32)]| times.first().copied().ok_or(CUresult::CUDA_ERROR_UNKNOWN);
        let mut times = self.call_idle(ctx, &message, |reply| reply.times)?;
        let (status, _) = first(&times)?;
        if CUresult(status) == CUresult::CUDA_ERROR_NOT_READY {
            // What was recorded in an idle stream has happened for the program. The device may have
            // yet to come to it.
            let known = |event: ObjectId| session.progress().has_happened(event);
            if known(start) && known(end) {
                for event in [start, end] {
                    self.call_idle(ctx, &msg::EventSynchronize { event }, |_| ())?;
                }
                times = self.call_idle(ctx, &message, |reply| reply.times)?;
            }
        }
        let (status, milliseconds) = first(&times)?;
        succeed(status)?;
        session.times().answered(&question, &times);
        Ok(milliseconds)
    }
}
