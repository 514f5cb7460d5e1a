//! Stream capture: what is queued in a stream that captures becomes a node of a graph. All of it happens here; the device knows nothing.

mod info;
mod node;
mod state;

use std::cell::Cell;

use outboard_abi::{CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode};
use outboard_wire::graph::Edge;

use crate::backend::{Backend, ContextId, ObjectId, Result, Stream};
use crate::border::{put, put_if, require};
use crate::context::Here;
use crate::graph::edges_of;
use crate::graph::model::{Role, world};
use crate::process::{Front, Process};
use crate::stream;

pub use info::*;
pub(crate) use node::{allocate, copy, fill, free, host, kernel, memory_operation, memory_operations, record, wait};
use state::{Capture, Member, Mode};
pub(crate) use state::{Captures, active};

thread_local! {
    static MODE: Cell<u32> = const { Cell::new(0) };
}

/// For a call on a stream that never becomes a node: refused while the stream captures.
#[inline]
pub(crate) fn refuse(front: &'static Front, here: &Here, stream: Stream) -> Result<()> {
    if !active(front) {
        return Ok(());
    }
    let captures = &mut world(front).captures;
    match stream {
        Stream::Legacy => captures.refuse_legacy(here.id),
        Stream::Created(ObjectId(stream)) => captures.refuse(stream),
    }
}

/// For a call that may not be safe while something captures: allocations, and questions to the device.
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

/// A stream is destroyed. What was captured in it stays; only a capture that began there ends with it.
pub(crate) fn forget_stream(front: &'static Front, stream: u64) {
    if active(front) {
        let mut world = world(front);
        if let Some(capture) = world.captures.forget_stream(front, stream)
            && !capture.borrowed
        {
            world.drop_graph(front, capture.graph);
        }
    }
}

/// Begins a capture into `graph`, or into a new one.
fn begin<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    graph: Option<(u64, Vec<Edge>)>,
) -> Result<()> {
    let mode = Mode::new(mode.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (here, found) = stream::find(process, stream)?;
    let Stream::Created(ObjectId(name)) = found else {
        refuse(process, &here, found)?;
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    };
    let blocking = stream::is_blocking(process, name);
    let mut world = world(process);
    if world.captures.of(name).is_some() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let (graph, behind, borrowed) = match graph {
        None => (world.new_graph(Role::Own), Vec::new(), false),
        Some((graph, edges)) => {
            world.graph(graph)?;
            world.check_dependencies(graph, &edges)?;
            (graph, edges, true)
        }
    };
    let thread = std::thread::current().id();
    let capture = Capture { graph, mode, thread, origin: name, invalidated: false, borrowed, left: Vec::new() };
    let shown = (Vec::new(), Vec::new());
    world.captures.begin(process, capture, |capture| Member { capture, behind, ctx: here.id, blocking, shown });
    Ok(())
}

pub unsafe fn cuStreamBeginCapture<B: Backend>(process: &'static Process<B>, stream: CUstream) -> Result<()> {
    begin(process, stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL, None)
}

pub unsafe fn cuStreamBeginCapture_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    mode: CUstreamCaptureMode,
) -> Result<()> {
    begin(process, stream, mode, None)
}

pub unsafe fn cuStreamBeginCaptureToGraph<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: CUstreamCaptureMode,
) -> Result<()> {
    // SAFETY: the program gives `count` of each, or no data.
    let (dependencies, data) = unsafe { crate::graph::named_edges(dependencies, data, count) }?;
    begin(process, stream, mode, Some((graph as u64, edges_of(dependencies, data)?)))
}

pub unsafe fn cuStreamEndCapture<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut CUgraph,
) -> Result<()> {
    let (here, found) = stream::find(process, stream)?;
    // SAFETY: null, for a program that knows the graph already, or its out parameter.
    unsafe { put_if(out, core::ptr::null_mut()) };
    let Stream::Created(ObjectId(name)) = found else {
        refuse(process, &here, found)?;
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    };
    let graph = {
        let mut world = world(process);
        let (id, capture) = world.captures.of(name).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != name {
            world.captures.invalidate(id);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        // It is over all the same, as with native drivers.
        let wrong_thread = capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id();
        // A graph that nobody is told of could not be destroyed.
        require(!out.is_null() || capture.borrowed)?;
        let error = match (capture.invalidated, world.is_joined(id, name)) {
            _ if wrong_thread => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
            (true, _) => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            (false, false) => Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
            (false, true) => None,
        };
        let capture = world.captures.end(process, id).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if let Some(error) = error {
            if !capture.borrowed {
                world.drop_graph(process, capture.graph);
            }
            return Err(error);
        }
        capture.graph
    };
    // SAFETY: as above.
    unsafe { put_if(out, graph as CUgraph) };
    Ok(())
}

pub unsafe fn cuThreadExchangeStreamCaptureMode<B: Backend>(
    process: &'static Process<B>,
    mode: *mut CUstreamCaptureMode,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's in and out parameter.
    let wanted = unsafe { mode.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.0;
    require(wanted <= 2)?;
    let before = MODE.try_with(|mode| mode.replace(wanted)).unwrap_or(0);
    // SAFETY: not null.
    unsafe { put(mode, outboard_abi::CUstreamCaptureMode_enum(before)) }
}

/// For a question about an event that was last recorded in a capture.
pub(crate) fn refuse_event(front: &'static Front, event: u64) -> Result<()> {
    world(front).captures.refuse_event(event)
}

/// Whether an event was last recorded in a capture.
pub(crate) fn is_marked(front: &'static Front, event: u64) -> bool {
    world(front).captures.marks.contains_key(&event)
}

/// An event is destroyed.
pub(crate) fn forget_event(front: &'static Front, event: u64) {
    world(front).captures.marks.remove(&event);
}
