//! Questions about a stream's capture, and changes of what its next node waits for.

use outboard_abi::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureStatus,
    CUstreamUpdateCaptureDependencies_flags as Flags, cuuint64_t,
};

use crate::backend::{Backend, Result, StreamId};
use crate::border::{put, put_if, require};
use crate::capture::state::{active, join};
use crate::graph::model::world;
use crate::graph::{edge_data, edges_of};
use crate::process::Process;
use crate::stream;

/// Where the answers about a capture go; each may be left out but the first.
struct Out {
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
}

const NOWHERE: Out = Out {
    status: core::ptr::null_mut(),
    id: core::ptr::null_mut(),
    graph: core::ptr::null_mut(),
    nodes: core::ptr::null_mut(),
    edges: core::ptr::null_mut(),
    count: core::ptr::null_mut(),
};

/// # Safety
/// The pointers are null or the program's out parameters.
unsafe fn info<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    out: &Out,
) -> Result<()> {
    let (here, found) = stream::find(process, stream)?;
    require(!out.status.is_null())?;
    let none = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    if !active(process) {
        // SAFETY: by the contract above.
        return unsafe { put(out.status, none) };
    }
    let mut world = world(process);
    if found == StreamId::LEGACY {
        // It never captures, but the program would use it next.
        world.captures.mind_legacy(here.id)?;
    }
    let Some((id, capture)) = world.captures.of(found) else {
        // SAFETY: by the contract above.
        return unsafe { put(out.status, none) };
    };
    if capture.invalidated {
        // SAFETY: by the contract above.
        return unsafe {
            put(out.status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED)
        };
    }
    let graph = capture.graph;
    let Some(member) = world.captures.members.get_mut(&found) else {
        return Err(CUresult::CUDA_ERROR_UNKNOWN);
    };
    let lossy = out.edges.is_null()
        && !out.nodes.is_null()
        && member.behind.iter().any(|edge| edge.ports != [0; 3]);
    if lossy {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    if !out.nodes.is_null() {
        member.shown.0 = member.behind.iter().map(|edge| edge.node).collect();
    }
    if !out.edges.is_null() {
        member.shown.1 = member.behind.iter().map(|edge| edge_data(edge.ports)).collect();
    }
    // SAFETY: by the contract above. The pointers stay valid until the next query of the stream or
    // the end of its capture; the layout of edge data is eight bytes.
    unsafe {
        put(out.status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)?;
        put_if(out.id, id);
        put_if(out.graph, graph.0 as CUgraph);
        put_if(out.nodes, member.shown.0.as_ptr().cast());
        put_if(out.edges, member.shown.1.as_ptr().cast());
        put_if(out.count, member.behind.len());
    }
    Ok(())
}

pub unsafe fn cuStreamIsCapturing<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
) -> Result<()> {
    // SAFETY: the program's out parameter.
    unsafe { info(process, stream, &Out { status, ..NOWHERE }) }
}

pub unsafe fn cuStreamGetCaptureInfo<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
) -> Result<()> {
    // SAFETY: the program's out parameters.
    unsafe { info(process, stream, &Out { status, id, ..NOWHERE }) }
}

pub unsafe fn cuStreamGetCaptureInfo_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    count: *mut usize,
) -> Result<()> {
    // SAFETY: the program's out parameters.
    unsafe { info(process, stream, &Out { status, id, graph, nodes, count, ..NOWHERE }) }
}

pub unsafe fn cuStreamGetCaptureInfo_v3<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    status: *mut CUstreamCaptureStatus,
    id: *mut cuuint64_t,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Result<()> {
    // SAFETY: the program's out parameters.
    unsafe { info(process, stream, &Out { status, id, graph, nodes, edges, count }) }
}

pub unsafe fn cuStreamUpdateCaptureDependencies<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    nodes: *mut CUgraphNode,
    count: usize,
    flags: u32,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        cuStreamUpdateCaptureDependencies_v2(
            process,
            stream,
            nodes,
            core::ptr::null(),
            count,
            flags,
        )
    }
}

pub unsafe fn cuStreamUpdateCaptureDependencies_v2<B: Backend>(
    process: &'static Process<B>,
    stream: CUstream,
    nodes: *mut CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: u32,
) -> Result<()> {
    let (_, found) = stream::find(process, stream)?;
    let flags = Flags(flags);
    let replace = flags == Flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
    require(replace || flags == Flags::CU_STREAM_ADD_CAPTURE_DEPENDENCIES)?;
    // SAFETY: the program gives `count` of each, or no data.
    let (nodes, data) = unsafe { crate::graph::named_edges(nodes, data, count) }?;
    let edges = edges_of(nodes, data)?;
    require(found != StreamId::LEGACY).map_err(|_| CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    let mut world = world(process);
    let (_, capture) = world.captures.of(found).ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.invalidated {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    let graph = capture.graph;
    world.check_dependencies(graph, &edges)?;
    if let Some(member) = world.captures.members.get_mut(&found) {
        if replace {
            member.behind.clear();
        }
        join(&mut member.behind, &edges);
    }
    Ok(())
}
