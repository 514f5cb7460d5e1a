//! Streams.

mod attributes;
mod host;
mod values;

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};

use outboard_abi::{
    CUcontext, CUdevice, CUevent, CUgreenCtx, CUhostFn, CUresult, CUstream, CUstreamCallback,
};

use crate::backend::{Backend, Result, StreamId};
use crate::border::{put, put_if, require};
use crate::context::{self, Here};
use crate::event::Object;
use crate::process::Process;
use crate::stream::{
    LEGACY, NON_BLOCKING, PER_THREAD, context_of, create, destroy, facts, find, resolve,
};

pub use super::managed::cuStreamAttachMemAsync;
pub use attributes::*;
pub use values::*;

pub unsafe fn cuStreamCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUstream,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamCreateWithPriority(process, out, flags, 0) }
}

pub unsafe fn cuStreamCreateWithPriority<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && flags & !NON_BLOCKING == 0)?;
    let handle = create(process, &here, flags, priority)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUstream) }
}

pub unsafe fn cuStreamDestroy_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
) -> Result<()> {
    crate::state::ready(process)?;
    if matches!(stream as u64, 0 | LEGACY | PER_THREAD) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    destroy(process, stream as u64)
}

pub unsafe fn cuStreamDestroy<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamDestroy_v2(process, stream) }
}

pub unsafe fn cuStreamSynchronize<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
) -> Result<()> {
    let (here, stream) = resolve(process, stream)?;
    crate::capture::refuse_unsafe(process)?;
    here.pay()?;
    here.note(process.backend.stream_synchronize(here.id, stream))
}

pub unsafe fn cuStreamQuery<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
) -> Result<()> {
    let (here, stream) = resolve(process, stream)?;
    crate::capture::refuse_unsafe(process)?;
    here.note(process.backend.stream_query(here.id, stream))
}

pub unsafe fn cuStreamWaitEvent<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    event: CUevent,
    flags: c_uint,
) -> Result<()> {
    let (here, stream) = find(process, stream)?;
    require(flags & !1 == 0)?;
    let event = crate::event::resolve(process, event)?;
    if let Some(outcome) = crate::capture::wait(process, &here, stream, &event, flags) {
        return outcome;
    }
    // An external wait is for captures.
    require(flags == 0)?;
    if !here.id.has_server_of(event.ctx) {
        return wait_across(process, &here, stream, &event);
    }
    here.note(process.backend.stream_wait_event(here.id, stream, event.id(), flags))
}

/// Later work of a stream waits for an event of another server.
#[cold]
#[inline(never)]
fn wait_across<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    stream: StreamId,
    event: &Object,
) -> Result<()> {
    here.note(process.backend.wait_for_event(here.id, stream, event.ctx, event.id()))
}

pub unsafe fn cuLaunchHostFunc<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { host::launch(process, stream, function, data) }
}

pub unsafe fn cuStreamAddCallback<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    function: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { host::add_callback(process, stream, function, data, flags) }
}

pub unsafe fn cuStreamGetCtx<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut CUcontext,
) -> Result<()> {
    let (context, _, _) = facts(process, stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub unsafe fn cuStreamGetCtx_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut CUcontext,
    green_out: *mut CUgreenCtx,
) -> Result<()> {
    let context = context_of(process, stream)?;
    // A green context goes with the primary one that it is a share of.
    let (handle, green) = match &context.green {
        Some(green) => (context::primary(process, context.device)?.handle, green.handle),
        None => (context.handle, 0),
    };
    // SAFETY: the program's out parameters.
    unsafe {
        put(out, handle as CUcontext)?;
        put_if(green_out, green as CUgreenCtx);
    }
    Ok(())
}

pub unsafe fn cuStreamGetDevice<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut CUdevice,
) -> Result<()> {
    let (context, _, _) = facts(process, stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.device as CUdevice) }
}

pub unsafe fn cuStreamGetFlags<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut c_uint,
) -> Result<()> {
    let (_, flags, _) = facts(process, stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags) }
}

pub unsafe fn cuStreamGetPriority<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut c_int,
) -> Result<()> {
    let (_, _, priority) = facts(process, stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, priority) }
}

pub unsafe fn cuStreamGetId<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut c_ulonglong,
) -> Result<()> {
    let number = crate::stream::number(process, stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, number) }
}
