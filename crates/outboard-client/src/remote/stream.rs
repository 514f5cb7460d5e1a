//! A server's streams, and operations on its memory in their order.

use outboard_abi::CUstreamBatchMemOpType as Kind;
use outboard_front::backend::{ContextId, DevicePtr, MemoryOperation, ObjectId, Result, StreamId};
use outboard_wire::messages as msg;

use super::Remote;
use crate::pager::Done;
use crate::progress::Progress;

/// `CU_STREAM_NON_BLOCKING`.
pub(super) const NON_BLOCKING: u32 = 1;

impl Remote {
    pub(super) fn stream_create(
        &self,
        ctx: ContextId,
        id: ObjectId,
        flags: u32,
        priority: i32,
    ) -> Result<()> {
        if flags & NON_BLOCKING != 0 {
            self.session()?.progress().made_apart(StreamId::created(id));
        }
        self.post(ctx, &msg::StreamCreate { stream: id, flags, priority })
    }

    pub(super) fn stream_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        if self.pager.is_active() {
            self.pager.forget(id);
        }
        let (session, stream) = (self.session()?, StreamId::created(id));
        session.reuse().give_stream(ctx, stream, |block| session.give_back(block));
        // A fault is no reason to keep the stream.
        let synchronize = || self.stream_synchronize(ctx, stream);
        let _ = session.free_what_was_postponed_in(ctx, stream, synchronize);
        session.progress().ended(ctx, stream);
        session.holds.destroyed(ctx, stream);
        self.post(ctx, &msg::StreamDestroy { stream: id })
    }

    pub(super) fn stream_synchronize(&self, ctx: ContextId, stream: StreamId) -> Result<()> {
        self.waited_for(Done::Stream((ctx, stream)), false, |along| {
            let idle = |progress: &Progress| progress.is_stream_idle(ctx, stream);
            if !idle(self.session()?.progress())
                && self.poll_device(ctx, stream, |_| Ok(()))?.is_some()
            {
                return Ok(());
            }
            let message = msg::StreamSynchronize { stream };
            self.wait_in_worker(|| {
                self.wait(ctx, &message, along, idle, |progress, seq| {
                    progress.stream_done(ctx, stream, seq)
                })
            })
        })
    }

    pub(super) fn stream_query(&self, ctx: ContextId, stream: StreamId) -> Result<()> {
        self.waited_for(Done::Stream((ctx, stream)), true, |along| {
            let idle = |progress: &Progress| progress.is_stream_idle(ctx, stream);
            if let Some(seq) = self.learn(ctx, &msg::StreamQuery { stream }, along, idle)? {
                self.session()?.progress().stream_seen(ctx, stream, seq);
            }
            Ok(())
        })
    }

    pub(super) fn stream_wait_event(
        &self,
        ctx: ContextId,
        stream: StreamId,
        event: ObjectId,
        flags: u32,
    ) -> Result<()> {
        let session = self.session()?;
        let seq =
            session.post_counted(ctx, stream, &msg::StreamWaitEvent { stream, event, flags })?;
        session.progress().joined(ctx, stream, event, seq);
        Ok(())
    }

    pub(super) fn stream_batch(
        &self,
        ctx: ContextId,
        stream: StreamId,
        operations: &[MemoryOperation],
    ) -> Result<()> {
        let operations = operations.iter().map(numbers).collect();
        self.work(ctx, stream, || {
            self.post_to(ctx, stream, &msg::StreamBatch { stream, operations })
        })
    }
}

/// An operation as it travels: kind, address, value, flags.
fn numbers(operation: &MemoryOperation) -> (u64, DevicePtr, u64, u64) {
    let (kind, address, value, flags) = match *operation {
        MemoryOperation::Wait { address, value, wide: false, flags } => {
            (Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags)
        }
        MemoryOperation::Wait { address, value, wide: true, flags } => {
            (Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags)
        }
        MemoryOperation::Write { address, value, wide: false, flags } => {
            (Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags)
        }
        MemoryOperation::Write { address, value, wide: true, flags } => {
            (Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags)
        }
        MemoryOperation::Flush => {
            (Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, DevicePtr::NULL, 0, 0)
        }
        MemoryOperation::Barrier { flags } => {
            (Kind::CU_STREAM_MEM_OP_BARRIER, DevicePtr::NULL, 0, flags)
        }
    };
    (u64::from(kind.0), address, value, u64::from(flags))
}
