//! Questions about graphs and nodes that have one answer for all kinds of nodes.

use outboard_abi::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType, CUgraphNodeType_enum as T, CUresult,
};
use outboard_wire::graph::{Edge, NodeParams};

use crate::backend::{Backend, ObjectId, Result};
use crate::border::{put, require};
use crate::graph::model::{INVALID, world};
use crate::graph::{check_lossless, edge_data, give};
use crate::process::Process;

const NO_NODE: CUgraphNode = core::ptr::null_mut();

/// The kind of a node as C has it.
pub(crate) fn kind(params: &NodeParams) -> CUgraphNodeType {
    match params {
        NodeParams::Empty => T::CU_GRAPH_NODE_TYPE_EMPTY,
        NodeParams::Kernel(_) => T::CU_GRAPH_NODE_TYPE_KERNEL,
        NodeParams::Copy(_) => T::CU_GRAPH_NODE_TYPE_MEMCPY,
        NodeParams::Fill(_) => T::CU_GRAPH_NODE_TYPE_MEMSET,
        NodeParams::Host(_) => T::CU_GRAPH_NODE_TYPE_HOST,
        NodeParams::Child { .. } | NodeParams::Captured { .. } => T::CU_GRAPH_NODE_TYPE_GRAPH,
        NodeParams::EventRecord { .. } => T::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        NodeParams::EventWait { .. } => T::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        NodeParams::Allocate(_) => T::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        NodeParams::Free { .. } => T::CU_GRAPH_NODE_TYPE_MEM_FREE,
        NodeParams::Batch(_) => T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        NodeParams::Conditional(_) => T::CU_GRAPH_NODE_TYPE_CONDITIONAL,
    }
}

pub unsafe fn cuGraphGetNodes<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> Result<()> {
    crate::state::ready(process)?;
    let nodes: Vec<_> = world(process)
        .graph(ObjectId(graph as u64))?
        .nodes
        .iter()
        .map(|node| *node as CUgraphNode)
        .collect();
    // SAFETY: the program's out parameters.
    unsafe { give(&nodes, NO_NODE, out, count) }
}

pub unsafe fn cuGraphGetRootNodes<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> Result<()> {
    crate::state::ready(process)?;
    let roots: Vec<_> = {
        let world = world(process);
        let is_root =
            |node: &&u64| world.nodes.get(node).is_some_and(|node| node.dependencies.is_empty());
        world
            .graph(ObjectId(graph as u64))?
            .nodes
            .iter()
            .filter(is_root)
            .map(|node| *node as CUgraphNode)
            .collect()
    };
    // SAFETY: the program's out parameters.
    unsafe { give(&roots, NO_NODE, out, count) }
}

pub unsafe fn cuGraphGetEdges<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphGetEdges_v2(process, graph, from, to, core::ptr::null_mut(), count) }
}

pub unsafe fn cuGraphGetEdges_v2<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!count.is_null() && from.is_null() == to.is_null())?;
    let edges: Vec<(u64, Edge)> = {
        let world = world(process);
        let nodes = world.graph(ObjectId(graph as u64))?.nodes.iter();
        let of = |node: &u64| {
            let node = *node;
            let edges = world.nodes.get(&node).map_or(&[][..], |found| &found.dependents);
            edges.iter().map(move |edge| (node, *edge))
        };
        nodes.flat_map(of).collect()
    };
    let first: Vec<_> = edges.iter().map(|(node, _)| *node as CUgraphNode).collect();
    let second: Vec<Edge> = edges.into_iter().map(|(_, edge)| edge).collect();
    // SAFETY: the program's out parameters; `count` is not null.
    unsafe {
        let mut room = count.read();
        if !from.is_null() {
            give(&first, NO_NODE, from, &raw mut room)?;
        }
        give_edges(&second, to, data, count)
    }
}

/// Gives the nodes at the ends of edges, and the edges' data. Without room for those they must be
/// plain.
///
/// # Safety
/// As of [`give`].
unsafe fn give_edges(
    edges: &[Edge],
    out: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result<()> {
    require(!count.is_null() && (data.is_null() || !out.is_null()))?;
    if data.is_null() && !out.is_null() {
        check_lossless(edges)?;
    }
    let nodes: Vec<_> = edges.iter().map(|edge| edge.node as CUgraphNode).collect();
    let bytes: Vec<[u8; 8]> = edges.iter().map(|edge| edge_data(edge.ports)).collect();
    // SAFETY: by the contract above; edge data is eight bytes.
    unsafe {
        if !data.is_null() {
            let mut room = count.read();
            give(&bytes, [0; 8], data.cast::<[u8; 8]>(), &raw mut room)?;
        }
        give(&nodes, NO_NODE, out, count)
    }
}

pub unsafe fn cuGraphNodeGetDependencies<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphNodeGetDependencies_v2(process, node, out, core::ptr::null_mut(), count) }
}

pub unsafe fn cuGraphNodeGetDependencies_v2<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result<()> {
    crate::state::ready(process)?;
    let edges = world(process).node(node as u64)?.dependencies.clone();
    // SAFETY: the program's out parameters.
    unsafe { give_edges(&edges, out, data, count) }
}

pub unsafe fn cuGraphNodeGetDependentNodes<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUgraphNode,
    count: *mut usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphNodeGetDependentNodes_v2(process, node, out, core::ptr::null_mut(), count) }
}

pub unsafe fn cuGraphNodeGetDependentNodes_v2<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Result<()> {
    crate::state::ready(process)?;
    let edges = world(process).node(node as u64)?.dependents.clone();
    // SAFETY: the program's out parameters.
    unsafe { give_edges(&edges, out, data, count) }
}

pub unsafe fn cuGraphNodeGetType<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUgraphNodeType,
) -> Result<()> {
    crate::state::ready(process)?;
    let kind = kind(&world(process).node(node as u64)?.params);
    // SAFETY: the program's out parameter.
    unsafe { put(out, kind) }
}

pub unsafe fn cuGraphNodeFindInClone<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    original: CUgraphNode,
    clone: CUgraph,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    let found = {
        let world = world(process);
        let graph = world.graph(ObjectId(clone as u64))?;
        require(graph.origin != ObjectId::NONE)?;
        let is_it =
            |node: &&u64| world.nodes.get(node).is_some_and(|node| node.origin == original as u64);
        *graph.nodes.iter().find(is_it).ok_or(INVALID)?
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, found as CUgraphNode) }
}

pub unsafe fn cuGraphChildGraphNodeGetGraph<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUgraph,
) -> Result<()> {
    crate::state::ready(process)?;
    let graph = match world(process).node(node as u64)?.params {
        NodeParams::Child { graph, .. } => graph,
        // Collectives: only the server knows the nodes.
        NodeParams::Captured { .. } => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(INVALID),
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, graph.0 as CUgraph) }
}
