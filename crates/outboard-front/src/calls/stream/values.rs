//! Waiting for and writing values in memory, in a stream's order.

use core::ffi::c_uint;

use outboard_abi::{
    CUdevice_attribute as A, CUdeviceptr, CUstream, CUstreamBatchMemOpParams, cuuint32_t,
    cuuint64_t,
};

use crate::backend::{Backend, DevicePtr, Result};
use crate::capture;
use crate::memory_operations::{Word, list, supported};
use crate::process::Process;
use crate::stream::find;
use crate::stream::values::{wait, write};

/// The first version of these functions exists only where the device says so.
fn first_version<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<()> {
    let (here, _) = find(process, stream)?;
    supported(&here, false, A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1)
}

/// # Safety
/// `operations` is null or has `count` elements, each with the member that its kind names.
unsafe fn batch<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    count: u32,
    operations: *const CUstreamBatchMemOpParams,
    flags: u32,
) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    // SAFETY: by the contract above.
    let list = unsafe { list(process, &here, operations, count, flags) }?;
    if list.is_empty() {
        return Ok(());
    }
    if let Some(outcome) = capture::memory_operations(process, &here, stream, &list) {
        return outcome;
    }
    here.note(process.backend.stream_batch(here.id, stream, &list))
}

pub unsafe fn cuStreamWaitValue32_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    wait(process, stream, Word::narrow(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamWaitValue32<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    first_version(process, stream)?;
    wait(process, stream, Word::narrow(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamWaitValue64_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    wait(process, stream, Word::wide(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamWaitValue64<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    first_version(process, stream)?;
    wait(process, stream, Word::wide(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamWriteValue32_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    write(process, stream, Word::narrow(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamWriteValue32<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    first_version(process, stream)?;
    write(process, stream, Word::narrow(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamWriteValue64_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    write(process, stream, Word::wide(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamWriteValue64<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    first_version(process, stream)?;
    write(process, stream, Word::wide(DevicePtr(address), value), flags)
}

pub unsafe fn cuStreamBatchMemOp_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    count: c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: the program's operations.
    unsafe { batch(process, stream, count, operations, flags) }
}

pub unsafe fn cuStreamBatchMemOp<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    count: c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Result<()> {
    first_version(process, stream)?;
    // SAFETY: the program's operations.
    unsafe { batch(process, stream, count, operations, flags) }
}
