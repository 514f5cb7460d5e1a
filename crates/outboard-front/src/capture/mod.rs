//! Stream capture: work queued in a stream that captures becomes a node of a graph. The front does
//! all of it; the device takes no part.

mod captured;
pub(crate) mod node;
pub(crate) mod state;

use std::cell::Cell;

use crate::backend::{ContextId, ObjectId, Result, StreamId};
use crate::context::Here;
use crate::graph::model::world;
use crate::process::Front;
use state::Mode;

pub(crate) use captured::{CapturedNode, of};
pub(crate) use node::{
    allocate, copy, fill, free, host, kernel, memory_operation, memory_operations, record, wait,
};
pub(crate) use state::active;

thread_local! {
    pub(crate) static MODE: Cell<u32> = const { Cell::new(0) };
}

/// For a call on a stream that never becomes a node: refused while the stream captures.
#[inline]
pub(crate) fn refuse(front: &'static Front, here: &Here, stream: StreamId) -> Result<()> {
    if !active(front) {
        return Ok(());
    }
    let captures = &mut world(front).captures;
    match stream {
        StreamId::LEGACY => captures.refuse_legacy(here.id),
        stream => captures.refuse(stream),
    }
}

/// For a call that may not be safe while something captures: allocations, and questions to the
/// device.
#[inline]
pub(crate) fn refuse_unsafe(front: &'static Front) -> Result<()> {
    if !active(front) {
        return Ok(());
    }
    let mode = MODE.try_with(Cell::get).ok().and_then(Mode::new).unwrap_or(Mode::Global);
    world(front).captures.refuse_unsafe(mode)
}

/// For a call that waits for a whole context.
#[inline]
pub(crate) fn refuse_context(front: &'static Front, here: &Here) -> Result<()> {
    if active(front) { world(front).captures.refuse_context(here.id) } else { Ok(()) }
}

/// A context ends, and with it the captures in which its streams take part.
pub(crate) fn forget_context(front: &'static Front, ctx: ContextId) {
    if !active(front) {
        return;
    }
    let mut world = world(front);
    for capture in world.captures.forget_context(front, ctx) {
        if !capture.borrowed {
            world.drop_graph(front, capture.graph);
        }
    }
}

/// A stream is destroyed. Captured nodes stay; only a capture that began there ends with it.
pub(crate) fn forget_stream(front: &'static Front, stream: StreamId) {
    if active(front) {
        let mut world = world(front);
        if let Some(capture) = world.captures.forget_stream(front, stream)
            && !capture.borrowed
        {
            world.drop_graph(front, capture.graph);
        }
    }
}

/// For a question about an event that was last recorded in a capture.
pub(crate) fn refuse_event(front: &'static Front, event: ObjectId) -> Result<()> {
    world(front).captures.refuse_event(event)
}

/// Whether an event was last recorded in a capture.
pub(crate) fn is_marked(front: &'static Front, event: ObjectId) -> bool {
    world(front).captures.marks.contains_key(&event)
}

/// An event is destroyed.
pub(crate) fn forget_event(front: &'static Front, event: ObjectId) {
    world(front).captures.marks.remove(&event);
}
