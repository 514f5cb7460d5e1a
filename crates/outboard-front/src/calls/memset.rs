//! Fills: twelve entry points of one shape.

use core::ffi::{c_uchar, c_uint, c_ushort};

use outboard_abi::{CUdeviceptr, CUdeviceptr_v1, CUstream};

use crate::backend::{Backend, DevicePtr, Fill, Result, StreamId};
use crate::border::require;
use crate::capture;
use crate::context::Here;
use crate::memory::{check_device, context_for};
use crate::process::Process;
use crate::stream::{DefaultStream, find, resolve_default};

/// Fills that do not say so in their name return before they are done, unless the host may look at
/// once or the program has asked for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    IfManaged,
    Never,
}

fn fill<B: Backend>(
    process: &'static Process<B>,
    (here, stream): (Here, StreamId),
    fill: Fill,
    wait: Wait,
) -> Result<()> {
    if fill.width == 0 || fill.height == 0 {
        return Ok(());
    }
    let element = u64::from(fill.element);
    require(fill.dst.is_multiple_of(element))?;
    let row =
        fill.width.checked_mul(element).ok_or(outboard_abi::CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(fill.height == 1 || (fill.pitch >= row && fill.pitch.is_multiple_of(element)))?;
    let above = fill
        .pitch
        .checked_mul(fill.height - 1)
        .ok_or(outboard_abi::CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let allocation = check_device(process, fill.dst, above.saturating_add(row))?;
    let of = context_for(process, here.id, &allocation)?;
    if let Some(outcome) = capture::fill(process, &here, stream, (of, &fill)) {
        return outcome;
    }
    if of == here.id {
        here.note(process.backend.fill(of, fill, stream))?;
    } else {
        // A fault of another server's device is none of this context.
        process.backend.fill_across(here.id, stream, of, fill)?;
    }
    if wait == Wait::IfManaged
        && (allocation.kind.is_managed() || allocation.kind.is_host() || allocation.synchronous)
    {
        return here.note(process.backend.stream_synchronize(here.id, stream));
    }
    Ok(())
}

macro_rules! fills {
    ($($bytes:literal $value:ident: $row:ident $row_async:ident $rows:ident $rows_async:ident;)*) => {$(
        pub unsafe fn $row<B: Backend>(process: &'static Process<B>, dst: CUdeviceptr, value: $value, width: usize, default: DefaultStream) -> Result<()> {
            let one = Fill { dst: DevicePtr(dst), pitch: 0, value: u32::from(value), element: $bytes, width: width as u64, height: 1 };
            fill(process, resolve_default(process, default)?, one, Wait::IfManaged)
        }

        pub unsafe fn $row_async<B: Backend>(process: &'static Process<B>, dst: CUdeviceptr, value: $value, width: usize, stream: CUstream) -> Result<()> {
            let one = Fill { dst: DevicePtr(dst), pitch: 0, value: u32::from(value), element: $bytes, width: width as u64, height: 1 };
            fill(process, find(process, stream)?, one, Wait::Never)
        }

        pub unsafe fn $rows<B: Backend>(
            process: &'static Process<B>, dst: CUdeviceptr,
            pitch: usize,
            value: $value,
            width: usize,
            height: usize,
            default: DefaultStream,
        ) -> Result<()> {
            let all = Fill { dst: DevicePtr(dst), pitch: pitch as u64, value: u32::from(value), element: $bytes, width: width as u64, height: height as u64 };
            fill(process, resolve_default(process, default)?, all, Wait::IfManaged)
        }

        pub unsafe fn $rows_async<B: Backend>(
            process: &'static Process<B>, dst: CUdeviceptr,
            pitch: usize,
            value: $value,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> Result<()> {
            let all = Fill { dst: DevicePtr(dst), pitch: pitch as u64, value: u32::from(value), element: $bytes, width: width as u64, height: height as u64 };
            fill(process, find(process, stream)?, all, Wait::Never)
        }
    )*};
}

fills! {
    1 c_uchar: cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async;
    2 c_ushort: cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async;
    4 c_uint: cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async;
}

/// The forms of before CUDA 3.2, with 32-bit sizes and addresses.
macro_rules! old_fills {
    ($($value:ty: $row:ident $row_new:ident $rows:ident $rows_new:ident;)*) => {$(
        pub unsafe fn $row<B: Backend>(process: &'static Process<B>, dst: CUdeviceptr_v1, value: $value, width: c_uint) -> Result<()> {
            // SAFETY: as this function's.
            unsafe { $row_new(process, dst.into(), value, width as usize, DefaultStream::Legacy) }
        }

        pub unsafe fn $rows<B: Backend>(
            process: &'static Process<B>, dst: CUdeviceptr_v1,
            pitch: c_uint,
            value: $value,
            width: c_uint,
            height: c_uint,
        ) -> Result<()> {
            let (pitch, width, height) = (pitch as usize, width as usize, height as usize);
            // SAFETY: as this function's.
            unsafe { $rows_new(process, dst.into(), pitch, value, width, height, DefaultStream::Legacy) }
        }
    )*};
}

old_fills! {
    c_uchar: cuMemsetD8 cuMemsetD8_v2 cuMemsetD2D8 cuMemsetD2D8_v2;
    c_ushort: cuMemsetD16 cuMemsetD16_v2 cuMemsetD2D16 cuMemsetD2D16_v2;
    c_uint: cuMemsetD32 cuMemsetD32_v2 cuMemsetD2D32 cuMemsetD2D32_v2;
}
