//! Waiting for and writing values in memory: what CUDA checks of it.

use outboard_abi::{
    CUdevice_attribute as A, CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType as Kind,
};

use crate::backend::{Backend, ContextId, DevicePtr, MemoryOperation, Result};
use crate::border::{require, slice};
use crate::context::Here;
use crate::device::value;
use crate::process::Process;

/// `CUstreamWaitValue_flags`: four conditions, and a flush of remote writes.
const WAIT_FLAGS: u32 = 3 | FLUSH;
const FLUSH: u32 = 1 << 30;
/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
pub(crate) const WRITE_FLAGS: u32 = 1;
/// Operations of one batch are fewer than this.
const MOST_OPERATIONS: u32 = 256;

/// A value with the address that it is at or goes to.
#[derive(Clone, Copy)]
pub(crate) struct Word {
    address: DevicePtr,
    pub(crate) value: u64,
    pub(crate) wide: bool,
}

impl Word {
    pub(crate) fn narrow(address: DevicePtr, value: u32) -> Word {
        Word { address, value: u64::from(value), wide: false }
    }

    pub(crate) fn wide(address: DevicePtr, value: u64) -> Word {
        Word { address, value, wide: true }
    }

    /// Checks the address and gives it as the device knows it.
    pub(crate) fn address<B: Backend>(
        &self,
        process: &'static Process<B>,
        ctx: ContextId,
    ) -> Result<DevicePtr> {
        require(self.address.is_multiple_of(if self.wide { 8 } else { 4 }))?;
        crate::memory::value_address(process, ctx, self.address)
    }
}

pub(crate) fn check_wait(here: &Here, flags: u32) -> Result<()> {
    require(flags & !WAIT_FLAGS == 0)?;
    // A flush where the device has none, and the condition that devices before Volta lack, are not
    // supported, rather than wrong.
    supported(here, flags & FLUSH == 0, A::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)?;
    supported(here, flags & 3 != 3, A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR)
}

/// `CUDA_ERROR_NOT_SUPPORTED` for what is not `plain` on a device without the attribute.
pub(crate) fn supported(here: &Here, plain: bool, attribute: A) -> Result<()> {
    if plain || value(here.device()?, attribute) != 0 {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// Reads the operations of a batch.
///
/// # Safety
/// As of [`batch`].
pub(crate) unsafe fn list<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    operations: *const CUstreamBatchMemOpParams,
    count: u32,
    flags: u32,
) -> Result<Vec<MemoryOperation>> {
    require(flags == 0 && count < MOST_OPERATIONS)?;
    // SAFETY: by the contract above.
    let operations = unsafe { slice(operations, count as usize) }?;
    // SAFETY: by the contract above.
    operations.iter().map(|operation| unsafe { read(process, here, operation) }).collect()
}

/// # Safety
/// The member that the operation's kind names is set.
unsafe fn read<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    operation: &CUstreamBatchMemOpParams,
) -> Result<MemoryOperation> {
    // SAFETY: every member begins with the kind, and by the contract above the one that it names is
    // set.
    unsafe {
        match operation.operation {
            kind
            @ (Kind::CU_STREAM_MEM_OP_WAIT_VALUE_32 | Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64) => {
                let (wait, wide) =
                    (operation.waitValue, kind == Kind::CU_STREAM_MEM_OP_WAIT_VALUE_64);
                check_wait(here, wait.flags)?;
                let values = wait.__bindgen_anon_1;
                let value = if wide { values.value64 } else { u64::from(values.value) };
                let address = Word { address: DevicePtr(wait.address), value, wide }
                    .address(process, here.id)?;
                Ok(MemoryOperation::Wait { address, value, wide, flags: wait.flags })
            }
            kind @ (Kind::CU_STREAM_MEM_OP_WRITE_VALUE_32
            | Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64) => {
                let (write, wide) =
                    (operation.writeValue, kind == Kind::CU_STREAM_MEM_OP_WRITE_VALUE_64);
                require(write.flags & !WRITE_FLAGS == 0)?;
                let values = write.__bindgen_anon_1;
                let value = if wide { values.value64 } else { u64::from(values.value) };
                let address = Word { address: DevicePtr(write.address), value, wide }
                    .address(process, here.id)?;
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
