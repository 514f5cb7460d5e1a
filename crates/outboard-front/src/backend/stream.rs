//! Types of the back end's methods for streams: batches of operations on memory.

use crate::backend::DevicePtr;

/// An operation of `cuStreamBatchMemOp`. Flags are those of cuda.h for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are those of the functions for one operation")]
pub enum MemoryOperation {
    /// As `cuStreamWaitValue32` and `64`.
    Wait { address: DevicePtr, value: u64, wide: bool, flags: u32 },
    /// As `cuStreamWriteValue32` and `64`.
    Write { address: DevicePtr, value: u64, wide: bool, flags: u32 },
    /// Makes outstanding remote writes visible.
    Flush,
    /// Orders the operations before it before those behind it.
    Barrier { flags: u32 },
}
