//! Graphs and their nodes.

use core::ffi::c_uint;

use outboard_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent,
    CUgraph, CUgraphConditionalHandle, CUgraphEdgeData, CUgraphNode, CUresult,
};
use outboard_wire::graph::{Edge, NodeParams};

use crate::backend::{Backend, ObjectId, Result};
use crate::border::{put, require};
use crate::graph::build::{add_child, host_node, newer};
use crate::graph::mirror::{flush, sweep};
use crate::graph::model::{Given, INVALID, Role, World, world};
use crate::graph::{edges_of, named_edges, params};
use crate::process::{Front, Process};

pub unsafe fn cuGraphCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraph,
    flags: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null() && flags == 0)?;
    let graph = world(process).new_graph(Role::Own);
    // SAFETY: the program's out parameter.
    unsafe { put(out, graph.0 as CUgraph) }
}

pub unsafe fn cuGraphDestroy<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
) -> Result<()> {
    crate::state::ready(process)?;
    {
        let mut world = world(process);
        // A graph inside a node goes with it.
        require(world.graph(ObjectId(graph as u64))?.role == Role::Own)?;
        world.drop_graph(process, ObjectId(graph as u64));
    }
    sweep(process);
    crate::graph::object::run_destructors(process);
    Ok(())
}

pub unsafe fn cuGraphDestroyNode<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
) -> Result<()> {
    crate::state::ready(process)?;
    {
        let mut world = world(process);
        let found = world.node(node as u64)?;
        // Memory of a graph is laid out once.
        if matches!(found.params, NodeParams::Allocate(_) | NodeParams::Free { .. }) {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        world.remove(process, node as u64);
    }
    sweep(process);
    Ok(())
}

pub unsafe fn cuGraphClone<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraph,
    original: CUgraph,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    let copy = world(process).clone_graph(process, ObjectId(original as u64), Role::Own)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, copy.0 as CUgraph) }
}

/// Adds a node and gives its handle.
///
/// # Safety
/// `out` is null or the program's out parameter; `dependencies` has `count` elements.
pub(super) unsafe fn add(
    front: &'static Front,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    params: NodeParams,
    given: Given,
) -> Result<()> {
    require(!out.is_null())?;
    // SAFETY: by the contract above.
    let (nodes, data) = unsafe { named_edges(dependencies, data, count) }?;
    let node = world(front).add(ObjectId(graph as u64), &edges_of(nodes, data)?, params, given)?;
    // SAFETY: by the contract above.
    unsafe { put(out, node as CUgraphNode) }
}

const NO_DATA: *const CUgraphEdgeData = core::ptr::null();

pub unsafe fn cuGraphAddEmptyNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: as this function's.
    unsafe {
        add(process, out, graph, dependencies, NO_DATA, count, NodeParams::Empty, Given::Nothing)
    }
}

pub unsafe fn cuGraphAddKernelNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let p = newer(unsafe { p.as_ref() }.ok_or(INVALID)?);
    // SAFETY: as this function's.
    unsafe { cuGraphAddKernelNode_v2(process, out, graph, dependencies, count, &raw const p) }
}

pub unsafe fn cuGraphAddKernelNode_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's parameters.
    let (params, given) = unsafe { params::kernel_node(process, p, Vec::new()) }?;
    // SAFETY: as this function's.
    unsafe { add(process, out, graph, dependencies, NO_DATA, count, params, given) }
}

pub unsafe fn cuGraphAddMemcpyNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    copy: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let (params, given) =
        params::copy_node(process, unsafe { copy.as_ref() }.ok_or(INVALID)?, ctx)?;
    // SAFETY: as this function's.
    unsafe { add(process, out, graph, dependencies, NO_DATA, count, params, given) }
}

pub unsafe fn cuGraphAddMemsetNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    fill: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let (params, given) =
        params::fill_node(process, unsafe { fill.as_ref() }.ok_or(INVALID)?, ctx)?;
    // SAFETY: as this function's.
    unsafe { add(process, out, graph, dependencies, NO_DATA, count, params, given) }
}

pub unsafe fn cuGraphAddHostNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_HOST_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: as this function's.
    unsafe { add(process, out, graph, dependencies, NO_DATA, count, host_node(p)?, Given::Nothing) }
}

pub unsafe fn cuGraphAddChildGraphNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    // SAFETY: the program gives `count` nodes.
    let (nodes, _) = unsafe { named_edges(dependencies, NO_DATA, count) }?;
    let node =
        add_child(process, ObjectId(graph as u64), nodes, None, ObjectId(child as u64), false)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, node as CUgraphNode) }
}

pub unsafe fn cuGraphAddEventRecordNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::to_record(process, event)?.id();
    // SAFETY: as this function's.
    unsafe {
        add(
            process,
            out,
            graph,
            dependencies,
            NO_DATA,
            count,
            NodeParams::EventRecord { event },
            Given::Nothing,
        )
    }
}

pub unsafe fn cuGraphAddEventWaitNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::resolve(process, event)?.id();
    // SAFETY: as this function's.
    unsafe {
        add(
            process,
            out,
            graph,
            dependencies,
            NO_DATA,
            count,
            NodeParams::EventWait { event },
            Given::Nothing,
        )
    }
}

pub unsafe fn cuGraphAddBatchMemOpNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's operations.
    let (params, given) =
        unsafe { params::batch_node(process, p.ctx, p.paramArray, p.count, p.flags) }?;
    // SAFETY: as this function's.
    unsafe { add(process, out, graph, dependencies, NO_DATA, count, params, given) }
}

/// Makes a value for a conditional node.
pub unsafe fn cuGraphConditionalHandleCreate<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphConditionalHandle,
    graph: CUgraph,
    ctx: CUcontext,
    value: c_uint,
    flags: c_uint,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null() && flags & !1 == 0)?;
    let here = params::context(process, ctx)?;
    world(process).graph(ObjectId(graph as u64))?;
    flush(process, &here, ObjectId(graph as u64))?;
    let handle =
        here.note(process.backend.graph_condition(here.id, ObjectId(graph as u64), value, flags))?;
    world(process).graph_mut(ObjectId(graph as u64))?.conditions.push(handle);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle) }
}

/// Does something with each edge that a program names by its two ends.
///
/// # Safety
/// `from` and `to` are null or have `count` nodes, `data` is null or has `count` elements.
unsafe fn each_edge(
    front: &'static Front,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    change: impl Fn(&mut World, Edge, u64) -> Result<()>,
) -> Result<()> {
    crate::state::ready(front)?;
    // SAFETY: by the contract above.
    let ((from, data), (to, _)) =
        unsafe { (named_edges(from, data, count)?, named_edges(to, NO_DATA, count)?) };
    let edges = edges_of(from, data)?;
    let mut world = world(front);
    world.graph(ObjectId(graph as u64))?;
    edges.into_iter().zip(to).try_for_each(|(edge, to)| change(&mut world, edge, *to as u64))
}

pub unsafe fn cuGraphAddDependencies<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphAddDependencies_v2(process, graph, from, to, NO_DATA, count) }
}

pub unsafe fn cuGraphAddDependencies_v2<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        each_edge(process, graph, from, to, data, count, |world, edge, to| {
            world.connect(ObjectId(graph as u64), edge, to)
        })
    }
}

pub unsafe fn cuGraphRemoveDependencies<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphRemoveDependencies_v2(process, graph, from, to, NO_DATA, count) }
}

pub unsafe fn cuGraphRemoveDependencies_v2<B: Backend>(
    process: &'static Process<B>,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe {
        each_edge(process, graph, from, to, data, count, |world, edge, to| {
            world.disconnect(ObjectId(graph as u64), edge, to)
        })
    }
}
