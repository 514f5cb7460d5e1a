//! Streams: handles, the default streams, ordering calls.

mod attributes;
mod default;
pub(crate) mod values;

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{CUcontext, CUdevice, CUevent, CUgreenCtx, CUhostFn, CUresult, CUstream, CUstreamCallback};

use crate::Driver;
use crate::backend::{ContextId, ObjectId, Result, Stream};
use crate::border::{put, put_if, require};
use crate::context::{self, Context, Here};
use crate::handles::{Kind, Table, not_found};

pub(crate) use crate::managed::cuStreamAttachMemAsync;
pub(crate) use attributes::*;
pub(crate) use default::resolve_default;
pub use default::{DefaultStream, or_per_thread};
pub(crate) use values::*;

/// `CU_STREAM_LEGACY`.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;
/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

struct Object {
    handle: u64,
    context: &'static Context,
    id: ContextId,
    flags: u32,
    priority: AtomicI32,
}

static STREAMS: Table<Object> = Table::new(Kind::Stream);

/// As [`find`], for a call that never becomes part of a graph: a stream that captures is refused.
pub(crate) fn resolve<D: Driver>(stream: CUstream) -> Result<(Here, Stream)> {
    let (here, stream) = find::<D>(stream)?;
    crate::capture::refuse(&here, stream)?;
    Ok((here, stream))
}

/// Whether the legacy default stream and this one wait for each other.
pub(crate) fn is_blocking(handle: u64) -> bool {
    STREAMS.look(handle).is_some_and(|object| object.flags & NON_BLOCKING == 0)
}

/// The context to work in and the stream there that a handle means.
pub(crate) fn find<D: Driver>(stream: CUstream) -> Result<(Here, Stream)> {
    match stream as u64 {
        0 | LEGACY => {
            let here = context::current()?;
            let stream = default::of_green::<D>(&here)?;
            Ok((here, stream.map_or(Stream::Legacy, |handle| Stream::Created(ObjectId(handle)))))
        }
        PER_THREAD => {
            let here = context::current()?;
            let stream = default::of_thread::<D>(&here)?;
            Ok((here, Stream::Created(ObjectId(stream))))
        }
        handle => {
            crate::state::ready()?;
            let object = STREAMS.look_again(handle).ok_or_else(|| not_found(Kind::Stream, handle))?;
            let here = object.context.live()?;
            Ok((here, Stream::Created(ObjectId(handle))))
        }
    }
}

/// Ends the handles of the streams of a green context that has ended.
pub(crate) fn forget_green(green: u64) {
    STREAMS.remove_where(|object| object.context.green.as_ref().is_some_and(|of| of.handle == green));
}

/// The context of a stream as the program named it.
pub(crate) fn context_of(stream: CUstream) -> Result<&'static Context> {
    crate::state::ready()?;
    facts(stream).map(|(context, _, _)| context)
}

/// Forgets the streams of a context that has ended.
pub(crate) fn forget(id: ContextId) {
    STREAMS.remove_where(|object| object.id == id);
}

pub(crate) fn create<D: Driver>(here: &Here, flags: u32, priority: i32) -> Result<u64> {
    let (least, greatest) = here.device()?.stream_priorities;
    let priority = priority.clamp(greatest, least);
    let make =
        |handle| Object { handle, context: here.named(), id: here.id, flags, priority: AtomicI32::new(priority) };
    let object = STREAMS.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let id = ObjectId(object.handle);
    let created = match here.green() {
        Some(green) => D::get().green_stream(here.id, green.id(), id, flags, priority),
        None => D::get().stream_create(here.id, id, flags, priority),
    };
    if let Err(error) = created {
        STREAMS.remove(object.handle);
        return here.note(Err(error));
    }
    Ok(object.handle)
}

fn destroy<D: Driver>(handle: u64) -> Result<()> {
    let object = STREAMS.remove(handle).ok_or_else(|| not_found(Kind::Stream, handle))?;
    crate::capture::forget_stream(handle);
    // With a fault in the context there is nothing left to destroy, and that is what the call returns.
    let here = object.context.live()?;
    D::get().stream_destroy(here.id, ObjectId(handle))
}

/// What the questions about a stream are answered from: its context, flags and priority.
fn facts(stream: CUstream) -> Result<(&'static Context, u32, i32)> {
    match stream as u64 {
        0 | LEGACY | PER_THREAD => Ok((context::current()?.named(), 0, 0)),
        handle => {
            let object = STREAMS.look_again(handle).ok_or_else(|| not_found(Kind::Stream, handle))?;
            Ok((object.context, object.flags, object.priority.load(Ordering::Relaxed)))
        }
    }
}

/// The priority of a stream that the program made.
pub(crate) fn priority(stream: CUstream) -> Option<i32> {
    STREAMS.look(stream as u64).map(|object| object.priority.load(Ordering::Relaxed))
}

/// Keeps a priority that was set as an attribute.
pub(crate) fn set_priority(stream: CUstream, priority: i32) {
    if let Some(object) = STREAMS.look(stream as u64) {
        object.priority.store(priority, Ordering::Relaxed);
    }
}

pub(crate) unsafe fn cuStreamCreate<D: Driver>(out: *mut CUstream, flags: c_uint) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamCreateWithPriority::<D>(out, flags, 0) }
}

pub(crate) unsafe fn cuStreamCreateWithPriority<D: Driver>(
    out: *mut CUstream,
    flags: c_uint,
    priority: c_int,
) -> Result<()> {
    let here = context::current()?;
    require(!out.is_null() && flags & !NON_BLOCKING == 0)?;
    let handle = create::<D>(&here, flags, priority)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle as CUstream) }
}

pub(crate) unsafe fn cuStreamDestroy_v2<D: Driver>(stream: CUstream) -> Result<()> {
    crate::state::ready()?;
    if matches!(stream as u64, 0 | LEGACY | PER_THREAD) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    destroy::<D>(stream as u64)
}

pub(crate) unsafe fn cuStreamDestroy<D: Driver>(stream: CUstream) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamDestroy_v2::<D>(stream) }
}

pub(crate) unsafe fn cuStreamSynchronize<D: Driver>(stream: CUstream) -> Result<()> {
    let (here, stream) = resolve::<D>(stream)?;
    crate::capture::refuse_unsafe()?;
    here.pay()?;
    here.note(D::get().stream_synchronize(here.id, stream))
}

pub(crate) unsafe fn cuStreamQuery<D: Driver>(stream: CUstream) -> Result<()> {
    let (here, stream) = resolve::<D>(stream)?;
    crate::capture::refuse_unsafe()?;
    here.note(D::get().stream_query(here.id, stream))
}

pub(crate) unsafe fn cuStreamWaitEvent<D: Driver>(stream: CUstream, event: CUevent, flags: c_uint) -> Result<()> {
    let (here, stream) = find::<D>(stream)?;
    require(flags & !1 == 0)?;
    let event = crate::event::resolve(event)?;
    if let Some(outcome) = crate::capture::wait(&here, stream, &event, flags) {
        return outcome;
    }
    // An external wait is for captures.
    require(flags == 0)?;
    here.note(D::get().stream_wait_event(here.id, stream, event.id(), flags))
}

pub(crate) unsafe fn cuLaunchHostFunc<D: Driver>(
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { crate::host_call::launch::<D>(stream, function, data) }
}

pub(crate) unsafe fn cuStreamAddCallback<D: Driver>(
    stream: CUstream,
    function: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { crate::host_call::add_callback::<D>(stream, function, data, flags) }
}

pub(crate) unsafe fn cuStreamGetCtx<D: Driver>(stream: CUstream, out: *mut CUcontext) -> Result<()> {
    let (context, _, _) = facts(stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.handle as CUcontext) }
}

pub(crate) unsafe fn cuStreamGetCtx_v2<D: Driver>(
    stream: CUstream,
    out: *mut CUcontext,
    green_out: *mut CUgreenCtx,
) -> Result<()> {
    let context = context_of(stream)?;
    // A green context goes with the primary one that it is a share of.
    let (handle, green) = match &context.green {
        Some(green) => (context::primary(context.device)?.handle, green.handle),
        None => (context.handle, 0),
    };
    // SAFETY: the program's out parameters.
    unsafe {
        put(out, handle as CUcontext)?;
        put_if(green_out, green as CUgreenCtx);
    }
    Ok(())
}

pub(crate) unsafe fn cuStreamGetDevice<D: Driver>(stream: CUstream, out: *mut CUdevice) -> Result<()> {
    let (context, _, _) = facts(stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, context.device as CUdevice) }
}

pub(crate) unsafe fn cuStreamGetFlags<D: Driver>(stream: CUstream, out: *mut c_uint) -> Result<()> {
    let (_, flags, _) = facts(stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, flags) }
}

pub(crate) unsafe fn cuStreamGetPriority<D: Driver>(stream: CUstream, out: *mut c_int) -> Result<()> {
    let (_, _, priority) = facts(stream)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, priority) }
}

pub(crate) unsafe fn cuStreamGetId<D: Driver>(stream: CUstream, out: *mut c_ulonglong) -> Result<()> {
    let (here, found) = find::<D>(stream)?;
    // Handles are unique in the process, as ids must be; the default stream needs one for each context.
    let id = match found {
        Stream::Legacy => u64::from(here.id.0),
        Stream::Created(id) => id.0,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, id) }
}
