//! Events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUevent, CUresult};

use crate::backend::{Backend, ContextId, ObjectId, Result};
use crate::border::require;
use crate::context::Here;
use crate::handles::{Kind, Live, not_found};
use crate::process::{Front, Process};

pub(crate) use crate::parts::event::Object;

/// `CU_EVENT_BLOCKING_SYNC`, `_DISABLE_TIMING`, `_INTERPROCESS`.
pub(crate) const FLAGS: u32 = 7;
pub(crate) const DISABLE_TIMING: u32 = 2;
pub(crate) const INTERPROCESS: u32 = 4;

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

/// The event of a handle, to be recorded by a launch. Such events take no times and are for this
/// process alone.
pub(crate) fn for_launch(front: &'static Front, event: CUevent) -> Result<()> {
    let object = to_record(front, event)?;
    require(object.flags & (DISABLE_TIMING | INTERPROCESS) == DISABLE_TIMING)
}

pub(crate) fn live(front: &'static Front, event: CUevent) -> Result<(Here, Live<Object>)> {
    let object = resolve(front, event)?;
    Ok((object.context.live()?, object))
}

/// Forgets the events of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.events.table.remove_where(|object| object.ctx == id);
}

fn insert(front: &'static Front, here: &Here, flags: u32, recorded: bool) -> Result<Arc<Object>> {
    let (captured, recorded) = (AtomicBool::new(false), AtomicBool::new(recorded));
    let make =
        |handle| Object { handle, context: here.context, ctx: here.id, flags, captured, recorded };
    front.events.table.insert(make).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

/// Makes an event.
pub(crate) fn create<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    flags: u32,
) -> Result<Arc<Object>> {
    let object = insert(process, here, flags, false)?;
    if let Err(error) = process.backend.event_create(here.id, object.id(), flags) {
        process.events.table.remove(object.handle);
        return here.note(Err(error));
    }
    Ok(object)
}

/// An event that other processes may open.
pub(crate) fn shareable(front: &'static Front, event: CUevent) -> Result<(Here, ObjectId)> {
    let (here, event) = live(front, event)?;
    require(event.flags & INTERPROCESS != 0)?;
    Ok((here, event.id()))
}

/// Gives an event of another process, which the backend opens under its name, a handle.
pub(crate) fn adopt(
    front: &'static Front,
    here: &Here,
    open: impl FnOnce(ObjectId) -> Result<()>,
) -> Result<u64> {
    let flags = INTERPROCESS | DISABLE_TIMING;
    // The other process may have recorded it.
    let object = insert(front, here, flags, true)?;
    if let Err(error) = open(object.id()) {
        front.events.table.remove(object.handle);
        return here.note(Err(error));
    }
    Ok(object.handle)
}
