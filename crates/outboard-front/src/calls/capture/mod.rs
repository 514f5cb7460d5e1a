//! Stream capture.

mod info;

use outboard_abi::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode,
};
use outboard_wire::graph::Edge;

use crate::backend::{Backend, ObjectId, Result, StreamId};
use crate::border::{put, put_if, require};
use crate::capture::state::{Capture, Member, Mode};
use crate::capture::{MODE, refuse};
use crate::graph::edges_of;
use crate::graph::model::{Role, world};
use crate::process::Process;
use crate::stream;

pub use info::*;

/// Begins a capture into `graph`, or into a new one.
fn begin<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    mode: CUstreamCaptureMode,
    graph: Option<(ObjectId, Vec<Edge>)>,
) -> Result<()> {
    let mode = Mode::new(mode.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let (here, found) = stream::find(process, stream)?;
    if found == StreamId::LEGACY {
        refuse(process, &here, found)?;
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let blocking = process.streams.is_blocking(found);
    let mut world = world(process);
    if world.captures.of(found).is_some() {
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
    let capture = Capture {
        graph,
        mode,
        thread,
        origin: found,
        invalidated: false,
        borrowed,
        left: Vec::new(),
    };
    let shown = (Vec::new(), Vec::new());
    world.captures.begin(process, capture, |capture| Member {
        capture,
        behind,
        ctx: here.id,
        blocking,
        shown,
    });
    Ok(())
}

pub unsafe fn cuStreamBeginCapture<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
) -> Result<()> {
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
    begin(process, stream, mode, Some((ObjectId(graph as u64), edges_of(dependencies, data)?)))
}

pub unsafe fn cuStreamEndCapture<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: *mut CUgraph,
) -> Result<()> {
    let (here, found) = stream::find(process, stream)?;
    // SAFETY: null, for a program that knows the graph already, or its out parameter.
    unsafe { put_if(out, core::ptr::null_mut()) };
    if found == StreamId::LEGACY {
        refuse(process, &here, found)?;
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let graph = {
        let mut world = world(process);
        let (id, capture) = world.captures.of(found).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.origin != found {
            world.captures.invalidate(id);
            return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        // It is over all the same, as with native drivers.
        let wrong_thread =
            capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id();
        // A graph whose handle is not returned could not be destroyed.
        require(!out.is_null() || capture.borrowed)?;
        let error = match (capture.invalidated, world.is_joined(id, found)) {
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
    unsafe { put_if(out, graph.0 as CUgraph) };
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
