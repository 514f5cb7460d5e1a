//! Streams: handles, the default streams, ordering calls.

use core::cell::RefCell;
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use outboard_abi::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUgreenCtx, CUhostFn, CUresult, CUstream, CUstreamAttrID,
    CUstreamAttrValue, CUstreamBatchMemOpParams, CUstreamCallback, cuuint32_t, cuuint64_t,
};
use parking_lot::Mutex;

use crate::Driver;
use crate::backend::{ContextId, ObjectId, Result, Stream};
use crate::border::{put, put_if, require};
use crate::context::{self, Context, Here};
use crate::handles::{Kind, Table, not_found};
pub(crate) use crate::managed::cuStreamAttachMemAsync;
use crate::stream_attributes;
use crate::stream_values::{self, Word};

/// Which default stream a call without a stream argument means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultStream {
    /// `CU_STREAM_LEGACY`.
    Legacy,
    /// `CU_STREAM_PER_THREAD`: the `_ptds` forms.
    PerThread,
}

/// `CU_STREAM_LEGACY`.
const LEGACY: u64 = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;
/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: u32 = 1;

/// For the `_ptsz` forms, in which a null stream is the per-thread one.
pub fn or_per_thread(stream: CUstream) -> CUstream {
    if stream.is_null() { PER_THREAD as CUstream } else { stream }
}

struct Object {
    handle: u64,
    context: &'static Context,
    id: ContextId,
    flags: u32,
    priority: AtomicI32,
}

static STREAMS: Table<Object> = Table::new(Kind::Stream);
/// Default streams of threads that have ended, to be destroyed by the next thread that makes one.
static ORPHANS: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// The default streams of one thread, by context or green context.
struct OfThread(RefCell<Vec<(u64, u64)>>);

impl Drop for OfThread {
    fn drop(&mut self) {
        ORPHANS.lock().extend(self.0.borrow().iter().map(|(_, handle)| handle));
    }
}

thread_local! {
    static OF_THREAD: OfThread = const { OfThread(RefCell::new(Vec::new())) };
}

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
            let stream = of_green::<D>(&here)?;
            Ok((here, stream.map_or(Stream::Legacy, |handle| Stream::Created(ObjectId(handle)))))
        }
        PER_THREAD => {
            let here = context::current()?;
            let stream = of_thread::<D>(&here)?;
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

/// The context to work in and the default stream that a call means.
pub(crate) fn resolve_default<D: Driver>(default: DefaultStream) -> Result<(Here, Stream)> {
    let handle = match default {
        DefaultStream::Legacy => LEGACY,
        DefaultStream::PerThread => PER_THREAD,
    };
    resolve::<D>(handle as CUstream)
}

/// What stands in for the default stream of a green context: the legacy stream itself is the primary context's.
fn of_green<D: Driver>(here: &Here) -> Result<Option<u64>> {
    let Some(green) = here.green() else { return Ok(None) };
    let mut known = green.default_stream.lock();
    if known.is_none() {
        let make = |handle| {
            let priority = AtomicI32::new(0);
            Object { handle, context: here.named(), id: here.id, flags: NON_BLOCKING, priority }
        };
        let handle = STREAMS.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?.handle;
        if let Err(error) = D::get().green_default_stream(here.id, green.id(), ObjectId(handle)) {
            STREAMS.remove(handle);
            return here.note(Err(error));
        }
        *known = Some(handle);
    }
    Ok(*known)
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

/// The calling thread's default stream in a context, made at its first use.
fn of_thread<D: Driver>(here: &Here) -> Result<u64> {
    let place = here.green().map_or(u64::from(here.id.0), |green| green.handle);
    let known = OF_THREAD
        .try_with(|of_thread| of_thread.0.borrow().iter().find(|(id, _)| *id == place).map(|(_, handle)| *handle));
    match known {
        Ok(Some(handle)) => return Ok(handle),
        Ok(None) => {}
        // The thread is ending: its destructors get the legacy stream's neighbour for themselves.
        Err(_) => return Err(CUresult::CUDA_ERROR_DEINITIALIZED),
    }
    for orphan in std::mem::take(&mut *ORPHANS.lock()) {
        let _ = destroy::<D>(orphan);
    }
    let handle = create::<D>(here, 0, 0)?;
    let _ = OF_THREAD.try_with(|of_thread| of_thread.0.borrow_mut().push((place, handle)));
    Ok(handle)
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
    if let Some(outcome) = crate::capture::wait(&here, stream, event.id().0, flags, event.is_captured()) {
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

pub(crate) unsafe fn cuStreamWaitValue32_v2<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::wait::<D>(stream, Word::narrow(address, value), flags)
}

pub(crate) unsafe fn cuStreamWaitValue32<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::first_version::<D>(stream)?;
    stream_values::wait::<D>(stream, Word::narrow(address, value), flags)
}

pub(crate) unsafe fn cuStreamWaitValue64_v2<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::wait::<D>(stream, Word::wide(address, value), flags)
}

pub(crate) unsafe fn cuStreamWaitValue64<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::first_version::<D>(stream)?;
    stream_values::wait::<D>(stream, Word::wide(address, value), flags)
}

pub(crate) unsafe fn cuStreamWriteValue32_v2<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::write::<D>(stream, Word::narrow(address, value), flags)
}

pub(crate) unsafe fn cuStreamWriteValue32<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint32_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::first_version::<D>(stream)?;
    stream_values::write::<D>(stream, Word::narrow(address, value), flags)
}

pub(crate) unsafe fn cuStreamWriteValue64_v2<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::write::<D>(stream, Word::wide(address, value), flags)
}

pub(crate) unsafe fn cuStreamWriteValue64<D: Driver>(
    stream: CUstream,
    address: CUdeviceptr,
    value: cuuint64_t,
    flags: c_uint,
) -> Result<()> {
    stream_values::first_version::<D>(stream)?;
    stream_values::write::<D>(stream, Word::wide(address, value), flags)
}

pub(crate) unsafe fn cuStreamBatchMemOp_v2<D: Driver>(
    stream: CUstream,
    count: c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Result<()> {
    // SAFETY: the program's operations.
    unsafe { stream_values::batch::<D>(stream, count, operations, flags) }
}

pub(crate) unsafe fn cuStreamBatchMemOp<D: Driver>(
    stream: CUstream,
    count: c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Result<()> {
    stream_values::first_version::<D>(stream)?;
    // SAFETY: the program's operations.
    unsafe { stream_values::batch::<D>(stream, count, operations, flags) }
}

pub(crate) unsafe fn cuStreamSetAttribute<D: Driver>(
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *const CUstreamAttrValue,
) -> Result<()> {
    // SAFETY: the program's value.
    unsafe { stream_attributes::set::<D>(stream, attribute, value) }
}

pub(crate) unsafe fn cuStreamGetAttribute<D: Driver>(
    stream: CUstream,
    attribute: CUstreamAttrID,
    value: *mut CUstreamAttrValue,
) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { stream_attributes::get::<D>(stream, attribute, value) }
}

pub(crate) unsafe fn cuStreamCopyAttributes<D: Driver>(to: CUstream, from: CUstream) -> Result<()> {
    stream_attributes::copy::<D>(to, from)
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
