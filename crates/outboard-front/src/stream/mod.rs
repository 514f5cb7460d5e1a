//! Streams: handles, the default streams, ordering calls.

pub(crate) mod default;
pub(crate) mod values;

use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{CUresult, CUstream};

use crate::backend::{Backend, ContextId, ObjectId, Result, StreamId};
use crate::context::{self, Context, Here};
use crate::handles::{Kind, not_found};
use crate::process::{Front, Process};

pub(crate) use crate::parts::stream::{NON_BLOCKING, Object};
pub(crate) use default::resolve_default;
pub use default::{DefaultStream, or_per_thread};

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: u64 = 2;

/// As [`find`], for a call that never becomes part of a graph: a stream that captures is refused.
pub(crate) fn resolve<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
) -> Result<(Here, StreamId)> {
    let (here, stream) = find(process, stream)?;
    crate::capture::refuse(process, &here, stream)?;
    Ok((here, stream))
}

/// The context to work in and the stream there that a handle means.
pub(crate) fn find<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
) -> Result<(Here, StreamId)> {
    match stream as u64 {
        0 | LEGACY => {
            let here = context::current(process)?;
            let stream = default::of_green(process, &here)?;
            Ok((
                here,
                stream.map_or(StreamId::LEGACY, |handle| StreamId::created(ObjectId(handle))),
            ))
        }
        PER_THREAD => {
            let here = context::current(process)?;
            let stream = default::of_thread(process, &here)?;
            Ok((here, StreamId::created(ObjectId(stream))))
        }
        handle => {
            crate::state::ready(process)?;
            let object = process
                .streams
                .table
                .look_again(handle)
                .ok_or_else(|| not_found(Kind::Stream, handle))?;
            let here = object.context.live()?;
            Ok((here, StreamId::created(ObjectId(handle))))
        }
    }
}

/// Ends the handles of the streams of a green context that has ended.
pub(crate) fn forget_green(front: &'static Front, green: u64) {
    front
        .streams
        .table
        .remove_where(|object| object.context.green.as_ref().is_some_and(|of| of.handle == green));
}

/// The context of a stream as the program named it.
pub(crate) fn context_of(front: &'static Front, stream: CUstream) -> Result<&'static Context> {
    facts(front, stream).map(|(context, _, _)| context)
}

/// Forgets the streams of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.streams.table.remove_where(|object| object.id == id);
}

pub(crate) fn create<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    flags: u32,
    priority: i32,
) -> Result<u64> {
    let (least, greatest) = here.device()?.stream_priorities;
    let priority = priority.clamp(greatest, least);
    let make = |handle| Object {
        handle,
        context: here.named(),
        id: here.id,
        number: process.streams.number(),
        flags,
        priority: AtomicI32::new(priority),
    };
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

pub(crate) fn destroy<B: Backend>(process: &'static Process<B>, handle: u64) -> Result<()> {
    let object =
        process.streams.table.remove(handle).ok_or_else(|| not_found(Kind::Stream, handle))?;
    crate::capture::forget_stream(process, StreamId(handle));
    // With a fault in the context there is nothing left to destroy, and that is what the call
    // returns.
    let here = object.context.live()?;
    here.note(process.backend.stream_destroy(here.id, ObjectId(handle)))
}

/// The number of a stream, which no other stream of the process has or had.
pub(crate) fn number<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<u64> {
    let (here, found) = find(process, stream)?;
    match found.object() {
        None => Ok(here.context.legacy.load(Ordering::Relaxed)),
        Some(id) => process
            .streams
            .table
            .look(id.0)
            .map(|object| object.number)
            .ok_or_else(|| not_found(Kind::Stream, id.0)),
    }
}

/// The facts about a stream that queries return: its context, flags and priority.
pub(crate) fn facts(
    front: &'static Front,
    stream: CUstream,
) -> Result<(&'static Context, u32, i32)> {
    crate::state::ready(front)?;
    match stream as u64 {
        0 | LEGACY | PER_THREAD => Ok((context::current(front)?.named(), 0, 0)),
        handle => {
            let object = front
                .streams
                .table
                .look_again(handle)
                .ok_or_else(|| not_found(Kind::Stream, handle))?;
            Ok((object.context, object.flags, object.priority.load(Ordering::Relaxed)))
        }
    }
}
