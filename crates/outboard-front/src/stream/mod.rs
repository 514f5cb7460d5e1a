//! Streams: handles, the default streams, ordering calls.

mod attributes;
mod default;
pub(crate) mod values;

use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{CUcontext, CUdevice, CUevent, CUgreenCtx, CUhostFn, CUresult, CUstream, CUstreamCallback};

use crate::process::{Front, Process};
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, ObjectId, Result, Stream};
use crate::border::{put, put_if, require};
use crate::context::{self, Context, Here};
use crate::handles::{Kind, Table, not_found};

pub use crate::managed::cuStreamAttachMemAsync;
pub use attributes::*;
pub(crate) use default::resolve_default;
pub use default::{DefaultStream, or_per_thread};
pub use values::*;

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

/// The streams of a process.
pub(crate) struct Streams {
    table: Table<Object>,
    /// Default streams of threads that have ended, to be destroyed by the next thread that makes one.
    orphans: Mutex<Vec<u64>>,
}

impl Streams {
    pub(crate) const fn new() -> Streams {
        Streams { table: Table::new(Kind::Stream), orphans: Mutex::new(Vec::new()) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

/// As [`find`], for a call that never becomes part of a graph: a stream that captures is refused.
pub(crate) fn resolve<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<(Here, Stream)> {
    let (here, stream) = find(process, stream)?;
    crate::capture::refuse(process, &here, stream)?;
    Ok((here, stream))
}

/// Whether the legacy default stream and this one wait for each other.
pub(crate) fn is_blocking(front: &'static Front, handle: u64) -> bool {
    front.streams.table.look(handle).is_some_and(|object| object.flags & NON_BLOCKING == 0)
}

/// The context to work in and the stream there that a handle means.
pub(crate) fn find<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<(Here, Stream)> {
    match stream as u64 {
        0 | LEGACY => {
            let here = context::current(process)?;
            let stream = default::of_green(process, &here)?;
            Ok((here, stream.map_or(Stream::Legacy, |handle| Stream::Created(ObjectId(handle)))))
        }
        PER_THREAD => {
            let here = context::current(process)?;
            let stream = default::of_thread(process, &here)?;
            Ok((here, Stream::Created(ObjectId(stream))))
        }
        handle => {
            crate::state::ready(process)?;
            let object = process.streams.table.look_again(handle).ok_or_else(|| not_found(Kind::Stream, handle))?;
            let here = object.context.live()?;
            Ok((here, Stream::Created(ObjectId(handle))))
        }
    }
}

/// Ends the handles of the streams of a green context that has ended.
pub(crate) fn forget_green(front: &'static Front, green: u64) {
    front.streams.table.remove_where(|object| object.context.green.as_ref().is_some_and(|of| of.handle == green));
}

/// The context of a stream as the program named it.
pub(crate) fn context_of(front: &'static Front, stream: CUstream) -> Result<&'static Context> {
    facts(front, stream).map(|(context, _, _)| context)
}

/// Forgets the streams of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.streams.table.remove_where(|object| object.id == id);
}

pub(crate) fn create<B: Backend>(process: &'static Process<B>, here: &Here, flags: u32, priority: i32) -> Result<u64> {
    let (least, greatest) = here.device()?.stream_priorities;
    let priority = priority.clamp(greatest, least);
    let make =
        |handle| Object { handle, context: here.named(), id: here.id, flags, priority: AtomicI32::new(priority) };
    let object = process.streams.table.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let id = ObjectId(object.handle);
    let created = match here.green() {
        Some(green) => process.backend.green_stream(here.id, green.id(), id, flags, priority),
        None => process.backend.stream_create(here.id, id, flags, priority),
    };
    if let Err(error) = created {
        process.streams.table.remove(object.handle);
        return here.note(Err(error));
    }
    Ok(object.handle)
}

fn destroy<B: Backend>(process: &'static Process<B>, handle: u64) -> Result<()> {
    let object = process.streams.table.remove(handle).ok_or_else(|| not_found(Kind::Stream, handle))?;
    crate::capture::forget_stream(process, handle);
    // With a fault in the context there is nothing left to destroy, and that is what the call returns.
    let here = object.context.live()?;
    here.note(process.backend.stream_destroy(here.id, ObjectId(handle)))
}

/// What the questions about a stream are answered from: its context, flags and priority.
fn facts(front: &'static Front, stream: CUstream) -> Result<(&'static Context, u32, i32)> {
    crate::state::ready(front)?;
    match stream as u64 {
        0 | LEGACY | PER_THREAD => Ok((context::current(front)?.named(), 0, 0)),
        handle => {
            let object = front.streams.table.look_again(handle).ok_or_else(|| not_found(Kind::Stream, handle))?;
            Ok((object.context, object.flags, object.priority.load(Ordering::Relaxed)))
        }
    }
}

/// The priority of a stream that the program made.
pub(crate) fn priority(front: &'static Front, stream: CUstream) -> Option<i32> {
    front.streams.table.look(stream as u64).map(|object| object.priority.load(Ordering::Relaxed))
}

/// Keeps a priority that was set as an attribute.
pub(crate) fn set_priority(front: &'static Front, stream: CUstream, priority: i32) {
    if let Some(object) = front.streams.table.look(stream as u64) {
        object.priority.store(priority, Ordering::Relaxed);
    }
}

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

pub unsafe fn cuStreamDestroy_v2<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<()> {
    crate::state::ready(process)?;
    if matches!(stream as u64, 0 | LEGACY | PER_THREAD) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    destroy(process, stream as u64)
}

pub unsafe fn cuStreamDestroy<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuStreamDestroy_v2(process, stream) }
}

pub unsafe fn cuStreamSynchronize<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<()> {
    let (here, stream) = resolve(process, stream)?;
    crate::capture::refuse_unsafe(process)?;
    here.pay()?;
    here.note(process.backend.stream_synchronize(here.id, stream))
}

pub unsafe fn cuStreamQuery<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<()> {
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
    here.note(process.backend.stream_wait_event(here.id, stream, event.id(), flags))
}

pub unsafe fn cuLaunchHostFunc<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { crate::host_call::launch(process, stream, function, data) }
}

pub unsafe fn cuStreamAddCallback<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    function: CUstreamCallback,
    data: *mut c_void,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { crate::host_call::add_callback(process, stream, function, data, flags) }
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
    let (here, found) = find(process, stream)?;
    // Handles are unique in the process, as ids must be; the default stream needs one for each context.
    let id = match found {
        Stream::Legacy => u64::from(here.id.0),
        Stream::Created(id) => id.0,
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, id) }
}
