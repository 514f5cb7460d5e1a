//! Messages of MPI, for `liboutboard-mpi.so`, which calls these by a private table.

use core::ffi::c_char;

use outboard_abi::CUresult;

use crate::backend::{Backend, ContextId, DevicePtr, Result, StreamId};
use crate::border::{put, require, slice};
use crate::memory::{check_device, context_of};
use crate::process::Process;
use crate::state;

/// Copies what another process needs to reach this one's worker into a buffer; how many bytes that
/// is, 0 if there is no such worker, or not enough room.
///
/// # Safety
/// There is room for so many bytes.
pub(crate) unsafe fn whereabouts<B: Backend>(
    process: &'static Process<B>,
    out: *mut u8,
    room: usize,
) -> usize {
    if state::is_forked() {
        return 0;
    }
    // Devices are found as a runtime has them found before it initialises the driver.
    state::interface(process);
    match process.backend.message_whereabouts() {
        Ok(Some(found)) if found.len() <= room && !out.is_null() => {
            // SAFETY: as the caller says.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), out, found.len()) };
            found.len()
        }
        _ => 0,
    }
}

/// The ticket for a link.
///
/// # Safety
/// `out` is null or fits one.
pub(crate) unsafe fn ticket<B: Backend>(
    process: &'static Process<B>,
    link: u32,
    out: *mut [u8; 16],
) -> Result<()> {
    let ticket = process.backend.message_ticket(link)?;
    let ticket = ticket.try_into().map_err(|_| CUresult::CUDA_ERROR_UNKNOWN)?;
    // SAFETY: as the caller says.
    unsafe { put(out, ticket) }
}

/// Has this process's worker call another one. If it cannot, says why and returns
/// `CUDA_ERROR_DEVICE_UNAVAILABLE`.
///
/// # Safety
/// All pointers are valid for what stands beside them; `why` gets a string that ends with a zero.
pub(crate) unsafe fn link<B: Backend>(
    process: &'static Process<B>,
    link: u32,
    (whereabouts, len): (*const u8, usize),
    ticket: *const [u8; 16],
    (why, room): (*mut c_char, usize),
) -> Result<()> {
    require(!ticket.is_null() && !why.is_null() && room > 0)?;
    // SAFETY: as the caller says.
    let (whereabouts, ticket) = unsafe { (slice(whereabouts, len)?, &*ticket) };
    let Some(failure) = process.backend.message_link(link, whereabouts, ticket)? else {
        return Ok(());
    };
    let len = failure.len().min(room - 1);
    // SAFETY: as the caller says.
    unsafe {
        std::ptr::copy_nonoverlapping(failure.as_ptr(), why.cast(), len);
        why.add(len).write(0);
    }
    Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE)
}

/// The context of device memory that only the device uses.
fn context<B: Backend>(
    process: &'static Process<B>,
    address: DevicePtr,
    bytes: u64,
) -> Result<ContextId> {
    let allocation = check_device(process, address, bytes)?;
    if allocation.kind.is_managed() || allocation.kind.is_host() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    context_of(process, &allocation)
}

/// Gives the worker a message to keep for another one; whether it has taken it.
pub(crate) fn offer<B: Backend>(
    process: &'static Process<B>,
    (link, number): (u32, u64),
    address: DevicePtr,
    bytes: u64,
) -> Result<bool> {
    let ctx = context(process, address, bytes)?;
    process.backend.stream_synchronize(ctx, StreamId::LEGACY)?;
    process.backend.message_offer(ctx, link, number, address, bytes)
}

/// Has the worker store a message from another one; whether it came.
pub(crate) fn take<B: Backend>(
    process: &'static Process<B>,
    (link, number): (u32, u64),
    address: DevicePtr,
    bytes: u64,
    combine: u32,
) -> Result<bool> {
    let ctx = context(process, address, bytes)?;
    process.backend.stream_synchronize(ctx, StreamId::LEGACY)?;
    process.backend.message_take(ctx, link, number, address, bytes, combine)
}

/// Tells another worker that a message is not wanted.
pub(crate) fn refuse<B: Backend>(
    process: &'static Process<B>,
    (link, number): (u32, u64),
) -> Result<()> {
    process.backend.message_refuse(link, number)
}
