//! Events, and the times between them.

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, Result, Stream};
use outboard_wire::messages as msg;

use super::{Remote, succeed, wire};
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
            self.session()?.progress().share_event(id.0);
        }
        if flags & DISABLE_TIMING == 0 {
            self.session()?.times().made(id.0);
        }
        self.post(ctx, &msg::EventCreate { event: id.0, flags })
    }

    pub(super) fn event_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        if self.pager.is_active() {
            self.pager.forget(id.0);
        }
        let session = self.session()?;
        session.progress().forget_event(id.0);
        session.times().forget(id.0);
        self.post(ctx, &msg::EventDestroy { event: id.0 })
    }

    pub(super) fn event_record(&self, ctx: ContextId, id: ObjectId, stream: Stream, flags: u32) -> Result<()> {
        let (session, stream_name) = (self.session()?, wire(stream));
        let message = msg::EventRecord { event: id.0, stream: stream_name, flags };
        let post = |idle| match idle {
            true => session.post_numbered(ctx, &message),
            false => self.post_counted(ctx, stream, &message),
        };
        session.progress().record(id.0, ctx, stream_name, post)?;
        if self.pager.is_active() {
            self.pager.recorded(id.0, ctx, wire(stream));
        }
        Ok(())
    }

    pub(super) fn event_synchronize(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.waited_for(Done::Event(id.0), false, |along| {
            let happened = |progress: &Progress| progress.has_happened(id.0);
            let message = msg::EventSynchronize { event: id.0 };
            self.wait(ctx, &message, along, happened, |progress, seq| progress.event_done(id.0, seq))
        })
    }

    pub(super) fn event_query(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.waited_for(Done::Event(id.0), true, |along| {
            let happened = |progress: &Progress| progress.has_happened(id.0);
            if let Some(seq) = self.learn(ctx, &msg::EventQuery { event: id.0 }, along, happened)? {
                self.session()?.progress().event_seen(id.0, seq);
            }
            Ok(())
        })
    }

    /// Milliseconds between two events.
    pub(super) fn event_elapsed(&self, ctx: ContextId, start: ObjectId, end: ObjectId) -> Result<f32> {
        let session = self.session()?;
        let question = match session.times().look((start.0, end.0), session.progress()) {
            Ok(milliseconds) if session.link().is_alive() => return Ok(milliseconds),
            Ok(_) => return Err(LOST),
            Err(question) => question,
        };
        let message = msg::EventsElapsed { pairs: question.pairs.clone() };
        let first = |times: &[(u32, f32)]| times.first().copied().ok_or(CUresult::CUDA_ERROR_UNKNOWN);
        let mut times = self.call_idle(ctx, &message, |reply| reply.times)?;
        let (status, _) = first(&times)?;
        if CUresult(status) == CUresult::CUDA_ERROR_NOT_READY {
            // What was recorded in an idle stream has happened for the program. The device may have yet to come to it.
            let known = |event: ObjectId| session.progress().has_happened(event.0);
            if known(start) && known(end) {
                for event in [start.0, end.0] {
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
