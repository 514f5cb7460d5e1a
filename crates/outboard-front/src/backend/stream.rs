//! What streams need of a device beyond order: attributes, and batches of operations on memory.

use super::{ContextId, Result, Stream};

/// An operation of `cuStreamBatchMemOp`. Flags are those of cuda.h for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the functions for one operation")]
pub enum MemoryOperation {
    /// As `cuStreamWaitValue32` and `64`.
    Wait { address: u64, value: u64, wide: bool, flags: u32 },
    /// As `cuStreamWriteValue32` and `64`.
    Write { address: u64, value: u64, wide: bool, flags: u32 },
    /// Makes outstanding remote writes visible.
    Flush,
    /// Orders the operations before it before those behind it.
    Barrier { flags: u32 },
}

/// The part of a [`Backend`](super::Backend) for streams.
pub trait Streams: Sized {
    /// Sets an attribute, one of `outboard_wire::launch::STREAM_ATTRIBUTES`, for launches from now on. Call.
    fn stream_set_attribute(&self, ctx: ContextId, stream: Stream, attribute: u32, value: [u8; 64]) -> Result<()>;
    /// The value of an attribute. Call.
    fn stream_attribute(&self, ctx: ContextId, stream: Stream, attribute: u32) -> Result<[u8; 64]>;
    /// Gives `dst` the attributes of `src`. Call.
    fn stream_copy_attributes(&self, ctx: ContextId, dst: Stream, src: Stream) -> Result<()>;
    /// Queues the operations, in order. Posted.
    fn stream_batch(&self, ctx: ContextId, stream: Stream, operations: &[MemoryOperation]) -> Result<()>;
}
