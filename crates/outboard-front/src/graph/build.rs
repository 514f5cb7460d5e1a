//! Graphs and their nodes: making, connecting, destroying.

use core::ffi::c_uint;

use outboard_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphConditionalHandle, CUgraphEdgeData,
    CUgraphNode, CUresult,
};
use outboard_wire::graph::{Edge, HostNode, NodeParams};

use super::mirror::{flush, sweep};
use super::model::{Given, INVALID, Role, World, world};
use super::{edges_of, named_edges, params};
use crate::Driver;
use crate::backend::{ObjectId, Result};
use crate::border::{put, require};
use crate::context;

pub(crate) unsafe fn cuGraphCreate<D: Driver>(out: *mut CUgraph, flags: c_uint) -> Result<()> {
    crate::state::ready()?;
    require(!out.is_null() && flags == 0)?;
    let graph = world().new_graph(Role::Own);
    // SAFETY: the program's out parameter.
    unsafe { put(out, graph as CUgraph) }
}

/// Lets the device forget what has gone.
pub(crate) fn forget_gone<D: Driver>() {
    let gone = std::mem::take(&mut world().gone);
    if gone.is_empty() {
        return;
    }
    // Any context will do: graphs are of none.
    if let Some(ctx) = context::any() {
        sweep::<D>(ctx, gone);
    }
}

pub(crate) unsafe fn cuGraphDestroy<D: Driver>(graph: CUgraph) -> Result<()> {
    crate::state::ready()?;
    {
        let mut world = world();
        // A graph inside a node goes with it.
        require(world.graph(graph as u64)?.role == Role::Own)?;
        world.drop_graph(graph as u64);
    }
    forget_gone::<D>();
    super::object::run_destructors();
    Ok(())
}

pub(crate) unsafe fn cuGraphDestroyNode<D: Driver>(node: CUgraphNode) -> Result<()> {
    crate::state::ready()?;
    {
        let mut world = world();
        let found = world.node(node as u64)?;
        // Memory of a graph is laid out once.
        if matches!(found.params, NodeParams::Allocate(_) | NodeParams::Free { .. }) {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        world.remove(node as u64);
    }
    forget_gone::<D>();
    Ok(())
}

pub(crate) unsafe fn cuGraphClone<D: Driver>(out: *mut CUgraph, original: CUgraph) -> Result<()> {
    crate::state::ready()?;
    require(!out.is_null())?;
    let copy = world().clone_graph(original as u64, Role::Own)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, copy as CUgraph) }
}

/// Adds a node and gives its handle.
///
/// # Safety
/// `out` is null or the program's out parameter; `dependencies` has `count` elements.
pub(super) unsafe fn add(
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
    let node = world().add(graph as u64, &edges_of(nodes, data)?, params, given)?;
    // SAFETY: by the contract above.
    unsafe { put(out, node as CUgraphNode) }
}

const NO_DATA: *const CUgraphEdgeData = core::ptr::null();

pub(crate) unsafe fn cuGraphAddEmptyNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, NodeParams::Empty, Given::Nothing) }
}

/// The structure of today for that of before CUDA 12.
pub(super) fn newer(p: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: p.func,
        gridDimX: p.gridDimX,
        gridDimY: p.gridDimY,
        gridDimZ: p.gridDimZ,
        blockDimX: p.blockDimX,
        blockDimY: p.blockDimY,
        blockDimZ: p.blockDimZ,
        sharedMemBytes: p.sharedMemBytes,
        kernelParams: p.kernelParams,
        extra: p.extra,
        kern: core::ptr::null_mut(),
        ctx: core::ptr::null_mut(),
    }
}

pub(crate) unsafe fn cuGraphAddKernelNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let p = newer(unsafe { p.as_ref() }.ok_or(INVALID)?);
    // SAFETY: as this function's.
    unsafe { cuGraphAddKernelNode_v2::<D>(out, graph, dependencies, count, &raw const p) }
}

pub(crate) unsafe fn cuGraphAddKernelNode_v2<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's parameters.
    let (params, given) = unsafe { params::kernel_node::<D>(p, Vec::new()) }?;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, params, given) }
}

pub(crate) unsafe fn cuGraphAddMemcpyNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    copy: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let (params, given) = params::copy_node(unsafe { copy.as_ref() }.ok_or(INVALID)?, ctx)?;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, params, given) }
}

pub(crate) unsafe fn cuGraphAddMemsetNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    fill: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let (params, given) = params::fill_node(unsafe { fill.as_ref() }.ok_or(INVALID)?, ctx)?;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, params, given) }
}

/// The parameters of a host node.
///
/// # Safety
/// `p` is null or the program's structure.
pub(super) unsafe fn host_node(p: *const CUDA_HOST_NODE_PARAMS) -> Result<NodeParams> {
    // SAFETY: by the contract above.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    let function = p.fn_.ok_or(INVALID)? as usize as u64;
    Ok(NodeParams::Host(HostNode { function, data: p.userData as u64 }))
}

pub(crate) unsafe fn cuGraphAddHostNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_HOST_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, host_node(p)?, Given::Nothing) }
}

pub(crate) unsafe fn cuGraphAddChildGraphNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Result<()> {
    crate::state::ready()?;
    require(!out.is_null())?;
    // SAFETY: the program gives `count` nodes.
    let (nodes, _) = unsafe { named_edges(dependencies, NO_DATA, count) }?;
    let node = add_child(graph as u64, nodes, None, child as u64, false)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, node as CUgraphNode) }
}

/// Adds a node with a copy of a graph inside, or, if it is to be `moved`, with the graph itself.
pub(super) fn add_child(
    graph: u64,
    nodes: &[CUgraphNode],
    data: Option<&[CUgraphEdgeData]>,
    child: u64,
    moved: bool,
) -> Result<u64> {
    let edges = edges_of(nodes, data)?;
    let mut world = world();
    world.check_dependencies(graph, &edges)?;
    world.graph(graph)?;
    let handle = world.handle();
    let inner = if moved {
        require(world.graph(child)?.role == Role::Own && !world.is_within(graph, child))?;
        world.graph_mut(child)?.role = Role::Child(handle);
        child
    } else {
        world.to_be_copied(child)?;
        world.clone_graph(child, Role::Child(handle))?
    };
    let params = NodeParams::Child { graph: inner, moved };
    world.insert(handle, super::model::Node::new(graph, params, Given::Nothing), &edges);
    Ok(handle)
}

pub(crate) unsafe fn cuGraphAddEventRecordNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::to_record(event)?.id().0;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, NodeParams::EventRecord { event }, Given::Nothing) }
}

pub(crate) unsafe fn cuGraphAddEventWaitNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::resolve(event)?.id().0;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, NodeParams::EventWait { event }, Given::Nothing) }
}

pub(crate) unsafe fn cuGraphAddBatchMemOpNode<D: Driver>(
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's operations.
    let (params, given) = unsafe { params::batch_node(p.ctx, p.paramArray, p.count, p.flags) }?;
    // SAFETY: as this function's.
    unsafe { add(out, graph, dependencies, NO_DATA, count, params, given) }
}

/// Makes a value for a conditional node.
pub(crate) unsafe fn cuGraphConditionalHandleCreate<D: Driver>(
    out: *mut CUgraphConditionalHandle,
    graph: CUgraph,
    ctx: CUcontext,
    value: c_uint,
    flags: c_uint,
) -> Result<()> {
    crate::state::ready()?;
    require(!out.is_null() && flags & !1 == 0)?;
    let here = params::context(ctx)?;
    world().graph(graph as u64)?;
    flush::<D>(&here, graph as u64)?;
    let handle = here.note(D::get().graph_condition(here.id, ObjectId(graph as u64), value, flags))?;
    world().graph_mut(graph as u64)?.conditions.push(handle);
    // SAFETY: the program's out parameter.
    unsafe { put(out, handle) }
}

/// Does something with each edge that a program names by its two ends.
///
/// # Safety
/// `from` and `to` are null or have `count` nodes, `data` is null or has `count` elements.
unsafe fn each_edge(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    change: impl Fn(&mut World, Edge, u64) -> Result<()>,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: by the contract above.
    let ((from, data), (to, _)) = unsafe { (named_edges(from, data, count)?, named_edges(to, NO_DATA, count)?) };
    let edges = edges_of(from, data)?;
    let mut world = world();
    world.graph(graph as u64)?;
    edges.into_iter().zip(to).try_for_each(|(edge, to)| change(&mut world, edge, *to as u64))
}

pub(crate) unsafe fn cuGraphAddDependencies<D: Driver>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphAddDependencies_v2::<D>(graph, from, to, NO_DATA, count) }
}

pub(crate) unsafe fn cuGraphAddDependencies_v2<D: Driver>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { each_edge(graph, from, to, data, count, |world, edge, to| world.connect(graph as u64, edge, to)) }
}

pub(crate) unsafe fn cuGraphRemoveDependencies<D: Driver>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphRemoveDependencies_v2::<D>(graph, from, to, NO_DATA, count) }
}

pub(crate) unsafe fn cuGraphRemoveDependencies_v2<D: Driver>(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { each_edge(graph, from, to, data, count, |world, edge, to| world.disconnect(graph as u64, edge, to)) }
}
