//! Copies.

mod batch;

use core::ffi::{c_uint, c_void};

use outboard_abi::{
    CUDA_MEMCPY2D, CUDA_MEMCPY2D_v1, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_MEMCPY3D_v1,
};
use outboard_abi::{CUcontext, CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};

use crate::backend::{Backend, DevicePtr, HostPtr, Result, UnifiedPtr};
use crate::copy::{Copy, Operand, Structure, Wait};
use crate::copy_queue::Queue;
use crate::files::mapped;
use crate::process::Process;
use crate::stream::{DefaultStream, find, resolve_default};

pub use batch::*;

/// Queues what a structure describes.
///
/// # Safety
/// `copy` is null or the program's structure; host memory that it names is the program's.
unsafe fn described<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    copy: *const impl Structure,
) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    // SAFETY: by the contract above.
    unsafe {
        let copy = copy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.describe(process)?;
        copy.map_or(Ok(()), |copy| {
            Queue { here, stream, wait: Wait::Asynchronous }.submit(process, &copy)
        })
    }
}

/// Queues a copy in a stream, unless the server reads the file that its source is.
///
/// # Safety
/// As [`Queue::submit`].
pub(super) unsafe fn queue<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    copy: &Copy,
) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    if mapped::upload(process, (&here, stream), copy) {
        return Ok(());
    }
    // SAFETY: by the contract above.
    unsafe { Queue { here, stream, wait: Wait::Asynchronous }.submit(process, copy) }
}

/// As [`queue`], in a default stream, and waits as far as CUDA says.
///
/// # Safety
/// As [`Queue::submit`].
pub(super) unsafe fn queue_default<B: Backend>(
    process: &'static Process<B>,
    default: DefaultStream,
    copy: &Copy,
) -> Result<()> {
    let (here, stream) = resolve_default(process, default)?;
    if mapped::upload(process, (&here, stream), copy) {
        return Ok(());
    }
    // SAFETY: by the contract above.
    unsafe { Queue { here, stream, wait: Wait::Synchronous }.submit(process, copy) }
}

/// As [`described`], in a default stream.
///
/// # Safety
/// As [`described`].
unsafe fn described_default<B: Backend>(
    process: &'static Process<B>,
    default: DefaultStream,
    copy: *const impl Structure,
) -> Result<()> {
    let (here, stream) = resolve_default(process, default)?;
    // SAFETY: by the contract above.
    unsafe {
        let copy = copy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.describe(process)?;
        copy.map_or(Ok(()), |copy| {
            Queue { here, stream, wait: Wait::Synchronous }.submit(process, &copy)
        })
    }
}

pub unsafe fn cuMemcpyHtoD_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue_default(
            process,
            default,
            &Copy::row(
                Operand::Device(DevicePtr(dst)),
                Operand::Host(HostPtr::of(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyDtoH_v2<B: Backend>(
    process: &'static Process<B>,
    dst: *mut c_void,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue_default(
            process,
            default,
            &Copy::row(
                Operand::Host(HostPtr::of(dst)),
                Operand::Device(DevicePtr(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyDtoD_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue_default(
            process,
            default,
            &Copy::row(
                Operand::Device(DevicePtr(dst)),
                Operand::Device(DevicePtr(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyHtoDAsync_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue(
            process,
            stream,
            &Copy::row(
                Operand::Device(DevicePtr(dst)),
                Operand::Host(HostPtr::of(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyDtoHAsync_v2<B: Backend>(
    process: &'static Process<B>,
    dst: *mut c_void,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue(
            process,
            stream,
            &Copy::row(
                Operand::Host(HostPtr::of(dst)),
                Operand::Device(DevicePtr(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyDtoDAsync_v2<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue(
            process,
            stream,
            &Copy::row(
                Operand::Device(DevicePtr(dst)),
                Operand::Device(DevicePtr(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpy<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue_default(
            process,
            default,
            &Copy::row(
                Operand::Unified(UnifiedPtr(dst)),
                Operand::Unified(UnifiedPtr(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyAsync<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue(
            process,
            stream,
            &Copy::row(
                Operand::Unified(UnifiedPtr(dst)),
                Operand::Unified(UnifiedPtr(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyPeer<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    _dst_context: CUcontext,
    src: CUdeviceptr,
    _src_context: CUcontext,
    bytes: usize,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue_default(
            process,
            default,
            &Copy::row(
                Operand::Device(DevicePtr(dst)),
                Operand::Device(DevicePtr(src)),
                bytes as u64,
            ),
        )
    }
}

pub unsafe fn cuMemcpyPeerAsync<B: Backend>(
    process: &'static Process<B>,
    dst: CUdeviceptr,
    _dst_context: CUcontext,
    src: CUdeviceptr,
    _src_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's memory.
    unsafe {
        queue(
            process,
            stream,
            &Copy::row(
                Operand::Device(DevicePtr(dst)),
                Operand::Device(DevicePtr(src)),
                bytes as u64,
            ),
        )
    }
}

/// Copies that structures describe.
macro_rules! structures {
    ($($name:ident $name_async:ident $structure:ty;)*) => {$(
        pub unsafe fn $name<B: Backend>(process: &'static Process<B>, copy: *const $structure, default: DefaultStream) -> Result<()> {
            // SAFETY: the program's structure.
            unsafe { described_default(process, default, copy) }
        }

        pub unsafe fn $name_async<B: Backend>(process: &'static Process<B>, copy: *const $structure, stream: CUstream) -> Result<()> {
            // SAFETY: the program's structure.
            unsafe { described(process, stream, copy) }
        }
    )*};
}

structures! {
    cuMemcpy2D_v2 cuMemcpy2DAsync_v2 CUDA_MEMCPY2D;
    cuMemcpy3D_v2 cuMemcpy3DAsync_v2 CUDA_MEMCPY3D;
    cuMemcpy3DPeer cuMemcpy3DPeerAsync CUDA_MEMCPY3D_PEER;
}

pub unsafe fn cuMemcpy2DUnaligned_v2<B: Backend>(
    process: &'static Process<B>,
    copy: *const CUDA_MEMCPY2D,
    default: DefaultStream,
) -> Result<()> {
    // SAFETY: the program's structure.
    unsafe { described_default(process, default, copy) }
}

/// The forms of before CUDA 3.2, with 32-bit sizes and addresses, that structures describe.
macro_rules! old_structures {
    ($($name:ident $structure:ty;)*) => {$(
        pub unsafe fn $name<B: Backend>(process: &'static Process<B>, copy: *const $structure) -> Result<()> {
            // SAFETY: the program's structure.
            unsafe { described_default(process, DefaultStream::Legacy, copy) }
        }
    )*};
}

old_structures! {
    cuMemcpy2D CUDA_MEMCPY2D_v1;
    cuMemcpy2DUnaligned CUDA_MEMCPY2D_v1;
    cuMemcpy3D CUDA_MEMCPY3D_v1;
}

pub unsafe fn cuMemcpy2DAsync<B: Backend>(
    process: &'static Process<B>,
    copy: *const CUDA_MEMCPY2D_v1,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's structure.
    unsafe { described(process, stream, copy) }
}

pub unsafe fn cuMemcpy3DAsync<B: Backend>(
    process: &'static Process<B>,
    copy: *const CUDA_MEMCPY3D_v1,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: the program's structure.
    unsafe { described(process, stream, copy) }
}

/// The forms of before CUDA 3.2 of plain copies: an address is a number of 32 bits, so that few can
/// be said.
macro_rules! old_copies {
    ($($name:ident $new:ident $name_async:ident $new_async:ident ($dst:ty, $src:ty);)*) => {$(
        pub unsafe fn $name<B: Backend>(process: &'static Process<B>, dst: $dst, src: $src, bytes: c_uint) -> Result<()> {
            // SAFETY: as this function's.
            unsafe { $new(process, dst.into(), src.into(), bytes as usize, DefaultStream::Legacy) }
        }

        pub unsafe fn $name_async<B: Backend>(process: &'static Process<B>, dst: $dst, src: $src, bytes: c_uint, stream: CUstream) -> Result<()> {
            // SAFETY: as this function's.
            unsafe { $new_async(process, dst.into(), src.into(), bytes as usize, stream) }
        }
    )*};
}

old_copies! {
    cuMemcpyHtoD cuMemcpyHtoD_v2 cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2 (CUdeviceptr_v1, *const c_void);
    cuMemcpyDtoH cuMemcpyDtoH_v2 cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2 (*mut c_void, CUdeviceptr_v1);
    cuMemcpyDtoD cuMemcpyDtoD_v2 cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2 (CUdeviceptr_v1, CUdeviceptr_v1);
}
