//! What is answered without NCCL.

use core::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Comm, Text, enter, put};
use crate::backend::Backend;
use crate::collectives::{self, Failure, Outcome, result};
use crate::process::Process;
use crate::{context, state};

/// The device that a thread works with, or the first one.
pub(super) fn current_device<B: Backend>(
    process: &'static Process<B>,
) -> Outcome<crate::backend::DeviceId> {
    state::init(process)?;
    context::init(process);
    let index = context::top().map_or(0, |context| context.device);
    Ok(state::device_id(process, index)?)
}

/// Whether the server makes collectives. A server that cannot be asked has to say itself why.
pub fn are_offered<B: Backend>(process: &'static Process<B>) -> bool {
    let ask = || collectives::release(process, current_device(process)?);
    let asked = catch_unwind(AssertUnwindSafe(ask));
    !matches!(asked, Ok(Err(Failure { result: result::SYSTEM_ERROR, .. })))
}

pub unsafe fn ncclGetVersion<B: Backend>(process: &'static Process<B>, version: *mut c_int) -> u32 {
    enter(process, "ncclGetVersion", || {
        let release = collectives::release(process, current_device(process)?)?;
        // SAFETY: the program's out parameter.
        unsafe { put(version, release as c_int) }
    })
}

pub unsafe fn ncclGetErrorString<B: Backend>(_: &'static Process<B>, code: u32) -> Text {
    let text = match code {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=WARN for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=WARN for details)",
        3 => c"internal error - please report this issue to Outboard's developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        8 => c"NCCL operation timed out",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

pub unsafe fn ncclGetLastError<B: Backend>(process: &'static Process<B>, _comm: Comm) -> Text {
    process.communicators.errors.last().unwrap_or(c"".as_ptr())
}

pub unsafe fn ncclResetDebugInit<B: Backend>(_: &'static Process<B>) {}

pub unsafe fn ncclCommGetAsyncError<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    out: *mut u32,
) -> u32 {
    enter(process, "ncclCommGetAsyncError", || {
        let comm = collectives::find(process, comm as u64)?;
        let state = collectives::state(process, &comm);
        if !matches!(state, result::SUCCESS | result::IN_PROGRESS) {
            process.communicators.errors.add(&comm.sentence());
        }
        // SAFETY: the program's out parameter.
        unsafe { put(out, state) }
    })
}

/// Gives something of a communicator that is ready.
unsafe fn tell<B: Backend>(
    process: &'static Process<B>,
    name: &str,
    comm: Comm,
    out: *mut c_int,
    what: impl FnOnce(&crate::parts::collectives::Comm) -> i32,
) -> u32 {
    enter(process, name, || {
        let comm = collectives::find(process, comm as u64)?;
        if comm.state() == result::IN_PROGRESS {
            return Err(Failure::in_progress());
        }
        // SAFETY: the program's out parameter.
        unsafe { put(out, what(&comm)) }
    })
}

pub unsafe fn ncclCommCount<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    count: *mut c_int,
) -> u32 {
    // SAFETY: the program's arguments.
    unsafe { tell(process, "ncclCommCount", comm, count, |comm| comm.members().1) }
}

pub unsafe fn ncclCommUserRank<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    rank: *mut c_int,
) -> u32 {
    // SAFETY: the program's arguments.
    unsafe { tell(process, "ncclCommUserRank", comm, rank, |comm| comm.members().0) }
}

pub unsafe fn ncclCommCuDevice<B: Backend>(
    process: &'static Process<B>,
    comm: Comm,
    device: *mut c_int,
) -> u32 {
    // SAFETY: the program's arguments.
    unsafe { tell(process, "ncclCommCuDevice", comm, device, |comm| comm.context.device as i32) }
}
