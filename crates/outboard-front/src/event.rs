//! Events.

use core::ffi::c_uint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUevent, CUresult, CUstream};

use crate::Driver;
use crate::backend::{ContextId, ObjectId, Result};
use crate::border::{put, require};
use crate::capture;
use crate::context::{self, Context, Here};
use crate::handles::{Kind, Live, Table, not_found};
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
    fn outside_capture(&self) -> Result<()> {
        if self.is_captured() { capture::refuse_event(self.handle) } else { Ok(()) }
    }

    /// As above, where asking leaves the capture as it is.
    fn outside_capture_to_time(&self) -> Result<()> {
        let marked = self.is_captured() && capture::is_marked(self.handle);
        if marked { Err(CUresult::CUDA_ERROR_CAPTURED_EVENT) } else { Ok(()) }
    }

    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }
}

static EVENTS: Table<Object> = Table::new(Kind::Event);

/// The event of a handle.
pub(crate) fn resolve(event: CUevent) -> Result<Live<Object>> {
    crate::state::ready()?;
    EVENTS.look_again(event as u64).ok_or_else(|| not_found(Kind::Event, event as u64))
}

/// The event of a handle, which something is about to record.
pub(crate) fn to_record(event: CUevent) -> Result<Live<Object>> {
    let object = resolve(event)?;
    object.recorded.store(true, Ordering::Relaxed);
    Ok(object)
}

/// The event of a handle, to be recorded by a launch. Such events take no times and are for this process alone.
pub(crate) fn for_launch(event: CUevent) -> Result<()> {
    let object = to_record(event)?;
    require(object.flags & (DISABLE_TIMING | INTERPROCESS) == DISABLE_TIMING)
}

fn live(event: CUevent) -> Result<(Here, Live<Object>)> {
    let object = resolve(event)?;
    Ok((object.context.live()?, object))
}

/// Forgets the events of a context that has ended.
pub(crate) fn forget(id: ContextId) {
    EVENTS.remove_where(|object| object.ctx == id);
}

fn insert(here: &Here, flags: u32, recorded: bool) -> Result<Arc<Object>> {
    let (captured, recorded) = (AtomicBool::new(false), AtomicBool::new(recorded));
    let make = |handle| Object { handle, context: here.context, ctx: here.id, flags, captured, recorded };
    EVENTS.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

pub(crate) unsafe fn cuEventCreate<D: Driver>(out: *mut CUevent, flags: c_uint) -> Result<()> {
    let here = context::current()?;
    require(!out.is_null() && flags & !FLAGS == 0)?;
    // An event for other processes cannot be timed; cuda.h makes the program say so.
    require(flags & INTERPROCESS == 0 || flags & DISABLE_TIMING != 0)?;
    let object = insert(&here, flags, false)?;
    if let Err(error) = D::get().event_create(here.id, object.id(), flags) {
        EVENTS.remove(object.handle);
        return here.note(Err(error));
    }
    // SAFETY: the program's out parameter.
    unsafe { put(out, object.handle as CUevent) }
}

/// An event that other processes may open.
pub(crate) fn shareable(event: CUevent) -> Result<(Here, ObjectId)> {
    let (here, event) = live(event)?;
    require(event.flags & INTERPROCESS != 0)?;
    Ok((here, event.id()))
}

/// Gives an event of another process, which the backend opens under its name, a handle.
pub(crate) fn adopt(here: &Here, open: impl FnOnce(ObjectId) -> Result<()>) -> Result<u64> {
    let flags = INTERPROCESS | DISABLE_TIMING;
    // The other process may have recorded it.
    let object = insert(here, flags, true)?;
    if let Err(error) = open(object.id()) {
        EVENTS.remove(object.handle);
        return here.note(Err(error));
    }
    Ok(object.handle)
}

pub(crate) unsafe fn cuEventDestroy_v2<D: Driver>(event: CUevent) -> Result<()> {
    crate::state::ready()?;
    let object = EVENTS.remove(event as u64).ok_or_else(|| not_found(Kind::Event, event as u64))?;
    if object.is_captured() {
        capture::forget_event(object.handle);
    }
    // With a fault in the context there is nothing left to destroy, and that is what the call returns.
    let here = object.context.live()?;
    D::get().event_destroy(here.id, object.id())
}

pub(crate) unsafe fn cuEventDestroy<D: Driver>(event: CUevent) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuEventDestroy_v2::<D>(event) }
}

pub(crate) unsafe fn cuEventRecord<D: Driver>(event: CUevent, stream: CUstream) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuEventRecordWithFlags::<D>(event, stream, 0) }
}

pub(crate) unsafe fn cuEventRecordWithFlags<D: Driver>(event: CUevent, stream: CUstream, flags: c_uint) -> Result<()> {
    require(flags & !1 == 0)?;
    let event = to_record(event)?;
    let (here, stream) = stream::find::<D>(stream)?;
    if event.ctx != here.id {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    if let Some(outcome) = capture::record(&here, stream, event.handle, flags, event.is_captured()) {
        event.captured.store(outcome?, Ordering::Relaxed);
        return Ok(());
    }
    // An external record is for captures.
    require(flags == 0)?;
    if event.is_captured() {
        event.captured.store(false, Ordering::Relaxed);
    }
    here.note(D::get().event_record(here.id, event.id(), stream, flags))?;
    if event.flags & INTERPROCESS == 0 {
        return Ok(());
    }
    // What the program tells another process next may have it wait for this record, which must be known by then.
    match D::get().event_query(here.id, event.id()) {
        Err(CUresult::CUDA_ERROR_NOT_READY) => Ok(()),
        outcome => here.note(outcome),
    }
}

pub(crate) unsafe fn cuEventSynchronize<D: Driver>(event: CUevent) -> Result<()> {
    let (here, event) = live(event)?;
    event.outside_capture()?;
    capture::refuse_unsafe()?;
    here.pay()?;
    here.note(D::get().event_synchronize(here.id, event.id()))
}

pub(crate) unsafe fn cuEventQuery<D: Driver>(event: CUevent) -> Result<()> {
    let (here, event) = live(event)?;
    event.outside_capture()?;
    capture::refuse_unsafe()?;
    here.note(D::get().event_query(here.id, event.id()))
}

pub(crate) unsafe fn cuEventElapsedTime_v2<D: Driver>(out: *mut f32, start: CUevent, end: CUevent) -> Result<()> {
    let (here, start) = live(start)?;
    let (_, end) = live(end)?;
    require(!out.is_null())?;
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    start.outside_capture_to_time()?;
    end.outside_capture_to_time()?;
    let milliseconds = here.note(D::get().event_elapsed(here.id, start.id(), end.id()))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, milliseconds) }
}

pub(crate) unsafe fn cuEventElapsedTime<D: Driver>(out: *mut f32, start: CUevent, end: CUevent) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuEventElapsedTime_v2::<D>(out, start, end) }
}
