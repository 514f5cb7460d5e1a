//! Events.

use core::ffi::c_uint;
use std::sync::atomic::Ordering;

use outboard_abi::{CUevent, CUresult, CUstream};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::capture;
use crate::context;
use crate::event::{DISABLE_TIMING, FLAGS, INTERPROCESS, Object, create, live, to_record};
use crate::handles::{Kind, not_found};
use crate::process::{Front, Process};
use crate::stream;

pub unsafe fn cuEventCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUevent,
    flags: c_uint,
) -> Result<()> {
    let here = context::current(process)?;
    require(!out.is_null() && flags & !FLAGS == 0)?;
    // An event for other processes cannot be timed; cuda.h makes the program say so.
    require(flags & INTERPROCESS == 0 || flags & DISABLE_TIMING != 0)?;
    let object = create(process, &here, flags)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, object.handle as CUevent) }
}

pub unsafe fn cuEventDestroy_v2<B: Backend>(
    process: &'static Process<B>,
    event: CUevent,
) -> Result<()> {
    crate::state::ready(process)?;
    let object = process
        .events
        .table
        .remove(event as u64)
        .ok_or_else(|| not_found(Kind::Event, event as u64))?;
    if object.is_captured() {
        capture::forget_event(process, object.id());
    }
    // With a fault in the context there is nothing left to destroy, and that is what the call
    // returns.
    let here = object.context.live()?;
    here.note(process.backend.event_destroy(here.id, object.id()))
}

pub unsafe fn cuEventDestroy<B: Backend>(
    process: &'static Process<B>,
    event: CUevent,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuEventDestroy_v2(process, event) }
}

pub unsafe fn cuEventRecord<B: Backend>(
    process: &'static Process<B>,
    event: CUevent,
    stream: CUstream,
) -> Result<()> {
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
    if let Some(outcome) =
        capture::record(process, &here, stream, event.id(), flags, event.is_captured())
    {
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
    // The program may next tell another process to wait for this record, so the server must know it
    // by then.
    match process.backend.event_query(here.id, event.id()) {
        Err(CUresult::CUDA_ERROR_NOT_READY) => Ok(()),
        outcome => here.note(outcome),
    }
}

pub unsafe fn cuEventSynchronize<B: Backend>(
    process: &'static Process<B>,
    event: CUevent,
) -> Result<()> {
    let (here, event) = live(process, event)?;
    outside_capture(process, &event)?;
    capture::refuse_unsafe(process)?;
    here.pay()?;
    here.note(process.backend.event_synchronize(here.id, event.id()))
}

pub unsafe fn cuEventQuery<B: Backend>(process: &'static Process<B>, event: CUevent) -> Result<()> {
    let (here, event) = live(process, event)?;
    outside_capture(process, &event)?;
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
    // Devices have clocks of their own.
    let apart = !start.ctx.has_server_of(end.ctx);
    if out.is_null() || apart || (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    outside_capture_to_time(process, &start)?;
    outside_capture_to_time(process, &end)?;
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

/// Refuses queries of an event that represents graph nodes.
fn outside_capture(front: &'static Front, event: &Object) -> Result<()> {
    if event.is_captured() { capture::refuse_event(front, event.id()) } else { Ok(()) }
}

/// As above, where asking leaves the capture as it is.
fn outside_capture_to_time(front: &'static Front, event: &Object) -> Result<()> {
    let marked = event.is_captured() && capture::is_marked(front, event.id());
    if marked { Err(CUresult::CUDA_ERROR_CAPTURED_EVENT) } else { Ok(()) }
}
