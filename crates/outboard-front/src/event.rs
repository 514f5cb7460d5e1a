//! Events.

use core::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUevent, CUresult, CUstream};

use crate::backend::{Backend, ContextId, ObjectId, Result};
use crate::border::{put, require};
use crate::capture;
use crate::context::{self, Context, Here};
use crate::handles::{Kind, Live, Table, not_found};
use crate::process::{Front, Process};
use crate::stream;

/// `CU_EVENT_BLOCKING_SYNC`, `_DISABLE_TIMING`, `_INTERPROCESS`.
const FLAGS: u32 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;

pub(crate) struct Object {
    handle: u64,
    context: &'static Context,
    pub(crate) ctx: ContextId,
    flags: u32,
    /// Last recorded in a stream that captured: it stands for nodes.
    captured: AtomicBool,
    /// Recorded at any time, or given to what may record it.
    recorded: AtomicBool,
}

impl Object {
    pub(crate) fn is_captured(&self) -> bool {
        self.captured.load(Ordering::Relaxed)
    }

    /// Whether there is anything that a stream could wait for.
    pub(crate) fn may_be_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }

    /// Refuses what an event that stands for nodes cannot answer.
    fn outside_capture(&self, front: &'static Front) -> Result<()> {
        if self.is_captured() { capture::refuse_event(front, self.handle) } else { Ok(()) }
    }

    /// As above, where asking leaves the capture as it is.
    fn outside_capture_to_time(&self, front: &'static Front) -> Result<()> {
        let marked = self.is_captured() && capture::is_marked(front, self.handle);
        if marked { Err(CUresult::CUDA_ERROR_CAPTURED_EVENT) } else { Ok(()) }
    }

    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }
}

/// The events of a process.
pub(crate) struct Events {
    table: Table<Object>,
}

impl Events {
    pub(crate) const fn new() -> Events {
        Events { table: Table::new(Kind::Event) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

/// The event of a handle.
pub(crate) fn resolve(front: &'static Front, event: CUevent) -> Result<Live<Object>> {
    crate::state::ready(front)?;
    front.events.table.look_again(event as u64).ok_or_else(|| not_found(Kind::Event, event as u64))
}

/// The event of a handle, which something is about to record.
pub(crate) fn to_record(front: &'static Front, event: CUevent) -> Result<Live<Object>> {
    let object = resolve(front, event)?;
    object.recorded.store(true, Ordering::Relaxed);
    Ok(object)
}

/// The event of a handle, to be recorded by a launch. Such events take no times and are for this process alone.
pub(crate) fn for_launch(front: &'static Front, event: CUevent) -> Result<()> {
    let object = to_record(front, event)?;
    require(object.flags & (DISABLE_TIMING | INTERPROCESS) == DISABLE_TIMING)
}

fn live(front: &'static Front, event: CUevent) -> Result<(Here, Live<Object>)> {
    let object = resolve(front, event)?;
    Ok((object.context.live()?, object))
}

/// Forgets the events of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.events.table.remove_where(|object| object.ctx == id);
}

fn insert(front: &'static Front, here: &Here, flags: u32, recorded: bool) -> Result<Arc<Object>> {
    let (captured, recorded) = (AtomicBool::new(false), AtomicBool::new(recorded));
    let make = |handle| Object { handle, context: here.context, ctx: here.id, flags, captured, recorded };
    front.events.table.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

pub unsafe fn cuEventCreate<B: Backend>(process: &'static Process<B>, out: *mut CUevent, flags: c_uint) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && flags & !FLAGS == 0)?;
    // An event for other processes cannot be timed; cuda.h makes the program say so.
    require(flags & INTERPROCESS == 0 || flags & DISABLE_TIMING != 0)?;
    let object = insert(process, &here, flags, false)?;
    if let Err(error) = process.backend.event_create(here.id, object.id(), flags) {
        process.events.table.remove(object.handle);
        return here.note(Err(error));
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, object.handle as CUevent) }
}

/// An event that other processes may open.
pub(crate) fn shareable(front: &'static Front, event: CUevent) -> Result<(Here, ObjectId)> {
    let (here, event) = live(front, event)?;
    require(event.flags & INTERPROCESS != 0)?;
    Ok((here, event.id()))
}

/// Gives an event of another process, which the backend opens under its name, a handle.
pub(crate) fn adopt(front: &'static Front, here: &Here, open: impl FnOnce(ObjectId) -> Result<()>) -> Result<u64> {
    let flags = INTERPROCESS | DISABLE_TIMING;
    // The other process may have recorded it.
    let object = insert(front, here, flags, true)?;
    if let Err(error) = open(object.id()) {
        front.events.table.remove(object.handle);
        return here.note(Err(error));
    }
    Ok(object.handle)
}

pub unsafe fn cuEventDestroy_v2<B: Backend>(process: &'static Process<B>, event: CUevent) -> Result<()> {
    crate::state::ready(process)?;
    let object = process.events.table.remove(event as u64).ok_or_else(|| not_found(Kind::Event, event as u64))?;
    if object.is_captured() {
        capture::forget_event(process, object.handle);
    }
    // With a fault in the context there is nothing left to destroy, and that is what the call returns.
    let here = object.context.live()?;
    here.note(process.backend.event_destroy(here.id, object.id()))
}

pub unsafe fn cuEventDestroy<B: Backend>(process: &'static Process<B>, event: CUevent) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuEventDestroy_v2(process, event) }
}

pub unsafe fn cuEventRecord<B: Backend>(process: &'static Process<B>, event: CUevent, stream: CUstream) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuEventRecordWithFlags(process, event, stream, 0) }
}

pub unsafe fn cuEventRecordWithFlags<B: Backend>(
    process: &'static Process<B>,
    event: CUevent,
    stream: CUstream,
    flags: c_uint,
) -> Result<()> {
    require(flags & !1 == 0)?;
    let event = to_record(process, event)?;
    let (here, stream) = stream::find(process, stream)?;
    if event.ctx != here.id {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    if let Some(outcome) = capture::record(process, &here, stream, event.handle, flags, event.is_captured()) {
        event.captured.store(outcome?, Ordering::Relaxed);
        return Ok(());
    }
    // An external record is for captures.
    require(flags == 0)?;
    if event.is_captured() {
        event.captured.store(false, Ordering::Relaxed);
    }
    here.note(process.backend.event_record(here.id, event.id(), stream, flags))?;
    if event.flags & INTERPROCESS == 0 {
        return Ok(());
    }
    // What the program tells another process next may have it wait for this record, which must be known by then.
    match process.backend.event_query(here.id, event.id()) {
        Err(CUresult::CUDA_ERROR_NOT_READY) => Ok(()),
        outcome => here.note(outcome),
    }
}

pub unsafe fn cuEventSynchronize<B: Backend>(process: &'static Process<B>, event: CUevent) -> Result<()> {
    let (here, event) = live(process, event)?;
    event.outside_capture(process)?;
    capture::refuse_unsafe(process)?;
    here.pay()?;
    here.note(process.backend.event_synchronize(here.id, event.id()))
}

pub unsafe fn cuEventQuery<B: Backend>(process: &'static Process<B>, event: CUevent) -> Result<()> {
    let (here, event) = live(process, event)?;
    event.outside_capture(process)?;
    capture::refuse_unsafe(process)?;
    here.note(process.backend.event_query(here.id, event.id()))
}

pub unsafe fn cuEventElapsedTime_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut f32,
    start: CUevent,
    end: CUevent,
) -> Result<()> {
    let (here, start) = live(process, start)?;
    let (_, end) = live(process, end)?;
    require(!out.is_null())?;
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    start.outside_capture_to_time(process)?;
    end.outside_capture_to_time(process)?;
    let milliseconds = here.note(process.backend.event_elapsed(here.id, start.id(), end.id()))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, milliseconds) }
}

pub unsafe fn cuEventElapsedTime<B: Backend>(
    process: &'static Process<B>,
    out: *mut f32,
    start: CUevent,
    end: CUevent,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuEventElapsedTime_v2(process, out, start, end) }
}
