//! Copies of bytes of an array's row.

use core::ffi::{c_uint, c_void};

use outboard_abi::{CUarray, CUdeviceptr, CUdeviceptr_v1, CUstream};

use crate::array::resolve;
use crate::backend::{Backend, DevicePtr, Extent, HostPtr, Layout, Result};
use crate::calls::copy::{queue, queue_default};
use crate::copy::{Copy, End, Operand};
use crate::process::{Front, Process};
use crate::stream::DefaultStream;

/// A side of a copy in an array of one dimension.
fn row_of(front: &'static Front, array: CUarray, offset: usize) -> Result<End> {
    let operand = Operand::Array(resolve(front, array)?);
    Ok(End { operand, layout: Layout::default(), at: (offset as u64, 0, 0) })
}

/// A side of a copy in memory.
fn row_in(operand: Operand, bytes: usize) -> End {
    End { operand, layout: Layout::packed(Extent::row(bytes as u64)), at: (0, 0, 0) }
}

fn copy(dst: End, src: End, bytes: usize) -> Copy {
    Copy { dst, src, extent: Extent::row(bytes as u64) }
}

pub unsafe fn cuMemcpyAtoA_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    dst_offset: usize,
    src: CUarray,
    src_offset: usize,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy = copy(row_of(process, dst, dst_offset)?, row_of(process, src, src_offset)?, bytes);
    // SAFETY: names no host memory.
    unsafe { queue_default(process, default, &copy) }
}

pub unsafe fn cuMemcpyAtoD_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    src: CUarray,
    offset: usize,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy =
        copy(row_in(Operand::Device(DevicePtr(dst)), bytes), row_of(process, src, offset)?, bytes);
    // SAFETY: page-locked memory may stand in for device memory.
    unsafe { queue_default(process, default, &copy) }
}

pub unsafe fn cuMemcpyDtoA_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    offset: usize,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy =
        copy(row_of(process, dst, offset)?, row_in(Operand::Device(DevicePtr(src)), bytes), bytes);
    // SAFETY: page-locked memory may stand in for device memory.
    unsafe { queue_default(process, default, &copy) }
}

pub unsafe fn cuMemcpyAtoH_v2<B: Backend>(
    process: &'static Process<B>,
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy =
        copy(row_in(Operand::Host(HostPtr::of(dst)), bytes), row_of(process, src, offset)?, bytes);
    // SAFETY: the program's memory.
    unsafe { queue_default(process, default, &copy) }
}

pub unsafe fn cuMemcpyHtoA_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    let copy =
        copy(row_of(process, dst, offset)?, row_in(Operand::Host(HostPtr::of(src)), bytes), bytes);
    // SAFETY: the program's memory.
    unsafe { queue_default(process, default, &copy) }
}

pub unsafe fn cuMemcpyAtoHAsync_v2<B: Backend>(
    process: &'static Process<B>,
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    let copy =
        copy(row_in(Operand::Host(HostPtr::of(dst)), bytes), row_of(process, src, offset)?, bytes);
    // SAFETY: the program's memory.
    unsafe { queue(process, stream, &copy) }
}

pub unsafe fn cuMemcpyHtoAAsync_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    let copy =
        copy(row_of(process, dst, offset)?, row_in(Operand::Host(HostPtr::of(src)), bytes), bytes);
    // SAFETY: the program's memory.
    unsafe { queue(process, stream, &copy) }
}

// The forms of before CUDA 3.2, with 32-bit sizes.

pub unsafe fn cuMemcpyAtoA<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    dst_offset: c_uint,
    src: CUarray,
    src_offset: c_uint,
    bytes: c_uint,
) -> Result<()> {
    let (dst_offset, src_offset, bytes) =
        (dst_offset as usize, src_offset as usize, bytes as usize);
    // SAFETY: as this function's.
    unsafe {
        cuMemcpyAtoA_v2(process, dst, dst_offset, src, src_offset, bytes, DefaultStream::Legacy)
    }
}

pub unsafe fn cuMemcpyAtoD<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr_v1,
    src: CUarray,
    offset: c_uint,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuMemcpyAtoD_v2(
            process,
            dst.into(),
            src,
            offset as usize,
            bytes as usize,
            DefaultStream::Legacy,
        )
    }
}

pub unsafe fn cuMemcpyDtoA<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    offset: c_uint,
    src: CUdeviceptr_v1,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuMemcpyDtoA_v2(
            process,
            dst,
            offset as usize,
            src.into(),
            bytes as usize,
            DefaultStream::Legacy,
        )
    }
}

pub unsafe fn cuMemcpyAtoH<B: Backend>(
    process: &'static Process<B>,
    dst: *mut c_void,
    src: CUarray,
    offset: c_uint,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuMemcpyAtoH_v2(process, dst, src, offset as usize, bytes as usize, DefaultStream::Legacy)
    }
}

pub unsafe fn cuMemcpyHtoA<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    offset: c_uint,
    src: *const c_void,
    bytes: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuMemcpyHtoA_v2(process, dst, offset as usize, src, bytes as usize, DefaultStream::Legacy)
    }
}

pub unsafe fn cuMemcpyAtoHAsync<B: Backend>(
    process: &'static Process<B>,
    dst: *mut c_void,
    src: CUarray,
    offset: c_uint,
    bytes: c_uint,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyAtoHAsync_v2(process, dst, src, offset as usize, bytes as usize, stream) }
}

pub unsafe fn cuMemcpyHtoAAsync<B: Backend>(
    process: &'static Process<B>,
    dst: CUarray,
    offset: c_uint,
    src: *const c_void,
    bytes: c_uint,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuMemcpyHtoAAsync_v2(process, dst, offset as usize, src, bytes as usize, stream) }
}
