//! Attributes of a server's streams, operations on its memory in their order, and times between events.

use outboard_abi::CUresult;
use outboard_abi::CUstreamBatchMemOpType as Kind;
use outboard_front::backend::{ContextId, MemoryOperation, ObjectId, Result, Stream, Streams};
use outboard_wire::messages as msg;

use super::{Remote, succeed, wire};
use crate::session::LOST;

impl Streams for Remote {
    fn stream_set_attribute(&self, ctx: ContextId, stream: Stream, attribute: u32, value: [u8; 64]) -> Result<()> {
        self.call(ctx, &msg::StreamSetAttribute { stream: wire(stream), attribute, value }, |_| ())
    }

    fn stream_attribute(&self, ctx: ContextId, stream: Stream, attribute: u32) -> Result<[u8; 64]> {
        self.call(ctx, &msg::StreamAttribute { stream: wire(stream), attribute }, |reply| reply.value)
    }

    fn stream_copy_attributes(&self, ctx: ContextId, dst: Stream, src: Stream) -> Result<()> {
        self.call(ctx, &msg::StreamCopyAttributes { dst: wire(dst), src: wire(src) }, |_| ())
    }

    fn stream_batch(&self, ctx: ContextId, stream: Stream, operations: &[MemoryOperation]) -> Result<()> {
        let operations = operations.iter().map(numbers).collect();
        self.work(ctx, stream, || self.post_to(ctx, stream, &msg::StreamBatch { stream: wire(stream), operations }))
    }
}

impl Remote {
    /// Milliseconds between two events.
    pub(super) fn time_between(&self, ctx: ContextId, start: ObjectId, end: ObjectId) -> Result<f32> {
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

/// An operation as it travels: kind, address, value, flags.
fn numbers(operation: &MemoryOperation) -> [u64; 4] {
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
        MemoryOperation::Flush => (Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 0, 0, 0),
        MemoryOperation::Barrier { flags } => (Kind::CU_STREAM_MEM_OP_BARRIER, 0, 0, flags),
    };
    [u64::from(kind.0), address, value, u64::from(flags)]
}
