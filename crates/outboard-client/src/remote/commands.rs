//! How commands are queued and answers waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, DevicePtr, Result, StreamId};
use outboard_wire::Reader;
use outboard_wire::messages as msg;

use super::Remote;
use super::shared::Along;
use crate::progress::Progress;
use crate::session::Session;

impl Remote {
    #[inline]
    pub(super) fn opened(&self) -> Option<&Arc<Session>> {
        // SAFETY: null, or a box that is never freed.
        unsafe { self.session.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    pub(crate) fn session(&self) -> Result<&Arc<Session>> {
        self.opened().ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
    }

    /// Queues what may put work into any stream.
    #[inline]
    pub(super) fn post<M: msg::Message>(&self, ctx: ContextId, message: &M) -> Result<()> {
        self.session()?.post(ctx, message)
    }

    /// Queues what puts work into one stream.
    #[inline]
    pub(super) fn post_to<M: msg::Message>(
        &self,
        ctx: ContextId,
        stream: StreamId,
        message: &M,
    ) -> Result<()> {
        self.session()?.post_to(ctx, stream, message)
    }

    /// As [`Remote::post_to`], for what uses these bytes of memory, which may be shared: an
    /// address, and how many.
    #[inline]
    pub(super) fn post_using<M: msg::Message>(
        &self,
        ctx: ContextId,
        stream: StreamId,
        (address, bytes): (DevicePtr, u64),
        message: &M,
    ) -> Result<()> {
        if self.is_tracked(address.unified(), bytes) {
            return self.work(ctx, stream, || self.post_to(ctx, stream, message));
        }
        self.post_to(ctx, stream, message)
    }

    /// Queues what puts work into no stream.
    pub(super) fn post_idle<M: msg::Message>(&self, ctx: ContextId, message: &M) -> Result<()> {
        self.session()?.post_numbered(ctx, message).map(drop)
    }

    /// Calls and decodes the answer.
    pub(super) fn call<M, T>(
        &self,
        ctx: ContextId,
        message: &M,
        read: impl for<'a> FnOnce(M::Reply<'a>) -> T,
    ) -> Result<T>
    where
        M: msg::Call,
    {
        let payload = self.session()?.call(ctx, message)?;
        decode::<M, T>(&payload, read)
    }

    /// As [`Remote::call`], for what leaves no work in any stream.
    pub(super) fn call_idle<M, T>(
        &self,
        ctx: ContextId,
        message: &M,
        read: impl for<'a> FnOnce(M::Reply<'a>) -> T,
    ) -> Result<T>
    where
        M: msg::Call,
    {
        let (_, payload) = self.session()?.call_idle(ctx, message)?;
        decode::<M, T>(&payload, read)
    }

    /// Posts what frees something after the work of a context, if nothing is left to do there: then
    /// there is nothing to wait for, and nothing to report. It is also posted once the process is
    /// ending, and with it the session. Returns whether it was posted.
    pub(super) fn post_if_idle<M: msg::Message>(
        &self,
        ctx: ContextId,
        message: &M,
    ) -> Result<bool> {
        let session = self.session()?;
        let posted = session.link().is_leaving() || session.progress().is_context_idle(ctx);
        if posted {
            session.post_numbered(ctx, message)?;
        }
        Ok(posted)
    }

    /// As [`Remote::call`], for what puts work into one stream.
    pub(super) fn call_to<M, T>(
        &self,
        ctx: ContextId,
        stream: StreamId,
        message: &M,
        read: impl for<'a> FnOnce(M::Reply<'a>) -> T,
    ) -> Result<T>
    where
        M: msg::Call,
    {
        let session = self.session()?;
        let (seq, payload) = session.call_idle(ctx, message)?;
        session.progress().posted_to(stream, seq);
        decode::<M, T>(&payload, read)
    }

    /// Waits or asks for the end of what has been queued, unless that is known, as `is_done` says;
    /// with `along`, if any, in place of the message. Returns the number of a command that
    /// succeeded.
    pub(super) fn learn<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
        along: Option<&mut Along>,
        is_done: impl FnOnce(&Progress) -> bool,
    ) -> Result<Option<u64>> {
        let session = self.session()?;
        if is_done(session.progress()) {
            return session.wait_for_nothing().map(|()| None);
        }
        if let Some(along) = along {
            return along.wait(session, ctx).map(Some);
        }
        session.wait(ctx, message).map(|(seq, _)| Some(seq))
    }

    /// As [`Remote::learn`], for a wait, which is noted by its number when it has succeeded. A
    /// question that succeeded is not: only a wait makes the driver print what kernels have printed
    /// and give back what pools have freed.
    pub(super) fn wait<M: msg::Call>(
        &self,
        ctx: ContextId,
        message: &M,
        along: Option<&mut Along>,
        is_done: impl FnOnce(&Progress) -> bool,
        note: impl FnOnce(&Progress, u64),
    ) -> Result<()> {
        self.session()?.before_wait();
        if let Some(seq) = self.learn(ctx, message, along, is_done)? {
            let session = self.session()?;
            let progress = session.progress();
            note(progress, seq);
            session.reuse().waited(|ctx, stream| progress.is_stream_idle(ctx, stream));
        }
        Ok(())
    }
}

fn decode<M: msg::Call, T>(
    payload: &[u8],
    read: impl for<'a> FnOnce(M::Reply<'a>) -> T,
) -> Result<T> {
    Reader::new(payload).get().map(read).map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)
}
