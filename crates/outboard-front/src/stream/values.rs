//! Waiting for and writing values in memory, in a stream's order.

use outboard_abi::{
    CUdevice_attribute as A, CUresult, CUstream, CUstreamBatchMemOpParams, CUstreamBatchMemOpType as Kind,
};

use crate::backend::{Backend, MemoryOperation, Result};
use crate::border::{require, slice};
use crate::capture;
use crate::context::Here;
use crate::device::value;
use crate::process::{Front, Process};
use crate::stream::find;

/// `CUstreamWaitValue_flags`: four conditions, and a flush of remote writes.
const WAIT_FLAGS: u32 = 3 | FLUSH;
const FLUSH: u32 = 1 << 30;
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
const WRITE_FLAGS: u32 = 1;
/// Operations of one batch are fewer than this.
const MOST: u32 = 256;

/// A value with the address that it is at or goes to.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    address: u64,
    value: u64,
    wide: bool,
}

impl Word {
    pub(crate) fn narrow(address: u64, value: u32) -> Word {
        Word { address, value: u64::from(value), wide: false }
    }

    pub(crate) fn wide(address: u64, value: u64) -> Word {
        Word { address, value, wide: true }
    }

    /// Checks the address and gives it as the device knows it.
    fn address(&self, front: &'static Front) -> Result<u64> {
        require(self.address.is_multiple_of(if self.wide { 8 } else { 4 }))?;
        crate::memory::value_address(front, self.address)
    }
}

fn check_wait(here: &Here, flags: u32) -> Result<()> {
    require(flags & !WAIT_FLAGS == 0)?;
    // A flush where the device has none, and the condition that devices before Volta lack, are not supported, rather than wrong.
    supported(here, flags & FLUSH == 0, A::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)?;
    supported(here, flags & 3 != 3, A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR)
}

/// `CUDA_ERROR_NOT_SUPPORTED` for what is not `plain` on a device without the attribute.
pub(crate) fn supported(here: &Here, plain: bool, attribute: A) -> Result<()> {
    if plain || value(here.device()?, attribute) != 0 { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) }
}

pub(crate) fn wait<B: Backend>(process: &'static Process<B>, stream: CUstream, word: Word, flags: u32) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    check_wait(&here, flags)?;
    let address = word.address(process)?;
    let node = || MemoryOperation::Wait { address, value: word.value, wide: word.wide, flags };
    if let Some(outcome) = capture::memory_operation(process, &here, stream, node) {
        return outcome;
    }
    here.note(process.backend.stream_wait_value(here.id, stream, address, word.value, word.wide, flags))
}

pub(crate) fn write<B: Backend>(process: &'static Process<B>, stream: CUstream, word: Word, flags: u32) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    require(flags & !WRITE_FLAGS == 0)?;
    let address = word.address(process)?;
    let node = || MemoryOperation::Write { address, value: word.value, wide: word.wide, flags };
    if let Some(outcome) = capture::memory_operation(process, &here, stream, node) {
        return outcome;
    }
    here.note(process.backend.stream_write_value(here.id, stream, address, word.value, word.wide, flags))
}

/// Reads the operations of a batch.
///
/// # Safety
/// As of [`batch`].
pub(crate) unsafe fn list(
    front: &'static Front,
    here: &Here,
    operations: *const CUstreamBatchMemOpParams,
    count: u32,
    flags: u32,
) -> Result<Vec<MemoryOperation>> {
    require(flags == 0 && count < MOST)?;
    // SAFETY: by the contract above.
    let operations = unsafe { slice(operations, count as usize) }?;
    // SAFETY: by the contract above.
    operations.iter().map(|operation| unsafe { read(front, here, operation) }).collect()
}

/// # Safety
/// The member that the operation's kind names is set.
unsafe fn read(front: &'static Front, here: &Here, operation: &CUstreamBatchMemOpParams) -> Result<MemoryOperation> {
    // SAFETY: every member begins with the kind, and by the contract above the one that it names is set.
    unsafe {
        match operation.operation {
            kind @ (Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 | Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64) => {
                let (wait, wide) = (operation.waitValue, kind == Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64);
                check_wait(here, wait.flags)?;
                let values = wait.__bindgen_anon_1;
                let value = if wide { values.value64 } else { u64::from(values.value) };
                let address = Word { address: wait.address, value, wide }.address(front)?;
                Ok(MemoryOperation::Wait { address, value, wide, flags: wait.flags })
            }
            kind @ (Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32 | Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64) => {
                let (write, wide) = (operation.writeValue, kind == Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64);
                require(write.flags & !WRITE_FLAGS == 0)?;
                let values = write.__bindgen_anon_1;
                let value = if wide { values.value64 } else { u64::from(values.value) };
                let address = Word { address: write.address, value, wide }.address(front)?;
                Ok(MemoryOperation::Write { address, value, wide, flags: write.flags })
            }
            Kind::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {
                supported(here, false, A::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)?;
                require(operation.flushRemoteWrites.flags == 0)?;
                Ok(MemoryOperation::Flush)
            }
            Kind::CU_STREAM_MEM_OP_BARRIER => {
                // Of the system or of the device.
                require(operation.memoryBarrier.flags <= 1)?;
                Ok(MemoryOperation::Barrier { flags: operation.memoryBarrier.flags })
            }
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
}
