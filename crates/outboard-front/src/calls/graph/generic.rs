//! Nodes by one structure for all kinds.

use outboard_abi::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v3, CUDA_MEMSET_NODE_PARAMS, CUgraph,
    CUgraphChildGraphNodeOwnership_enum as Ownership, CUgraphConditionalNodeType_enum as Kind,
    CUgraphEdgeData, CUgraphExec, CUgraphNode, CUgraphNodeParams, CUgraphNodeType_enum as T,
    CUresult,
};
use outboard_wire::graph::{ConditionalNode, Edge, HostNode, NodeParams};

use crate::backend::{Backend, DevicePtr, ObjectId, Result};
use crate::border::{put, require};
use crate::graph::model::{Given, INVALID, Node, Role, world};
use crate::graph::node::{copy_params, fill_params, kernel_again};
use crate::graph::{edges_of, memory, named_edges, params};
use crate::process::{Front, Process};

/// Most bodies of a conditional node.
const BODIES: u32 = 1 << 12;

fn kernel_params(p: &CUDA_KERNEL_NODE_PARAMS_v3) -> CUDA_KERNEL_NODE_PARAMS {
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
        kern: p.kern,
        ctx: p.ctx,
    }
}

/// The parameters that a structure gives for a node that is `old`, or a new one.
///
/// # Safety
/// The structure is as cuda.h says for its kind of node.
unsafe fn plain<B: Backend>(
    process: &'static Process<B>,
    p: &CUgraphNodeParams,
    old: Option<CUgraphNode>,
) -> Result<(NodeParams, Given)> {
    let what = &p.__bindgen_anon_1;
    // SAFETY: the kind says which member is set, and what it points to is the program's.
    unsafe {
        match p.type_ {
            T::CU_GRAPH_NODE_TYPE_EMPTY => Ok((NodeParams::Empty, Given::Nothing)),
            T::CU_GRAPH_NODE_TYPE_KERNEL => {
                let kernel = kernel_params(&what.kernel);
                match old {
                    Some(node) => kernel_again(process, node, &kernel),
                    None => params::kernel_node(process, &kernel, Vec::new()),
                }
            }
            T::CU_GRAPH_NODE_TYPE_MEMCPY => {
                let ctx = match old {
                    Some(node) if what.memcpy.copyCtx.is_null() => {
                        copy_params(&world(process), node)?.1
                    }
                    _ => what.memcpy.copyCtx,
                };
                params::copy_node(process, &what.memcpy.copyParams, ctx)
            }
            T::CU_GRAPH_NODE_TYPE_MEMSET => {
                let fill = &what.memset;
                let ctx = match old {
                    Some(node) if fill.ctx.is_null() => fill_params(&world(process), node)?.1,
                    _ => fill.ctx,
                };
                let fill = CUDA_MEMSET_NODE_PARAMS {
                    dst: fill.dst,
                    pitch: fill.pitch,
                    value: fill.value,
                    elementSize: fill.elementSize,
                    width: fill.width,
                    height: fill.height,
                };
                params::fill_node(process, &fill, ctx)
            }
            T::CU_GRAPH_NODE_TYPE_HOST => {
                let host =
                    CUDA_HOST_NODE_PARAMS { fn_: what.host.fn_, userData: what.host.userData };
                let function = host.fn_.ok_or(INVALID)? as usize as u64;
                Ok((
                    NodeParams::Host(HostNode { function, data: host.userData as u64 }),
                    Given::Nothing,
                ))
            }
            T::CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
                let event = crate::event::to_record(process, what.eventRecord.event)?.id();
                Ok((NodeParams::EventRecord { event }, Given::Nothing))
            }
            T::CU_GRAPH_NODE_TYPE_WAIT_EVENT => {
                let event = crate::event::resolve(process, what.eventWait.event)?.id();
                Ok((NodeParams::EventWait { event }, Given::Nothing))
            }
            T::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => {
                let batch = &what.memOp;
                params::batch_node(process, batch.ctx, batch.paramArray, batch.count, batch.flags)
            }
            T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL | T::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
                Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
            }
            _ => Err(INVALID),
        }
    }
}

pub unsafe fn cuGraphAddNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *mut CUgraphNodeParams,
) -> Result<()> {
    // SAFETY: as this function's.
    unsafe { cuGraphAddNode_v2(process, out, graph, dependencies, core::ptr::null(), count, p) }
}

pub unsafe fn cuGraphAddNode_v2<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    p: *mut CUgraphNodeParams,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    // SAFETY: null or the program's structure; it gives `count` dependencies.
    let (p, (nodes, data)) =
        unsafe { (p.as_mut().ok_or(INVALID)?, named_edges(dependencies, data, count)?) };
    require(p.reserved0 == [0; 3] && p.reserved2 == 0)?;
    let edges = edges_of(nodes, data)?;
    let graph = ObjectId(graph as u64);
    // SAFETY: the kind says which member is set.
    let node = unsafe {
        match p.type_ {
            T::CU_GRAPH_NODE_TYPE_GRAPH => {
                let child = p.__bindgen_anon_1.graph;
                let moved = match child.ownership {
                    Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => false,
                    Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => true,
                    _ => return Err(INVALID),
                };
                crate::graph::build::add_child(
                    process,
                    graph,
                    nodes,
                    data,
                    ObjectId(child.graph as u64),
                    moved,
                )?
            }
            T::CU_GRAPH_NODE_TYPE_CONDITIONAL => {
                conditional(process, graph, &edges, &mut p.__bindgen_anon_1.conditional)?
            }
            T::CU_GRAPH_NODE_TYPE_MEM_ALLOC => memory::add_allocation(
                process,
                graph,
                &edges,
                &mut *(&raw mut p.__bindgen_anon_1.alloc).cast(),
            )?,
            T::CU_GRAPH_NODE_TYPE_MEM_FREE => {
                memory::add_free(process, graph, &edges, DevicePtr(p.__bindgen_anon_1.free.dptr))?
            }
            _ => {
                let (params, given) = plain(process, p, None)?;
                world(process).add(graph, &edges, params, given)?
            }
        }
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, node as CUgraphNode) }
}

/// Adds a conditional node, with its empty bodies.
fn conditional(
    front: &'static Front,
    graph: ObjectId,
    edges: &[Edge],
    p: &mut CUDA_CONDITIONAL_NODE_PARAMS,
) -> Result<u64> {
    let fits = match p.type_ {
        Kind::CU_GRAPH_COND_TYPE_IF => p.size == 1 || p.size == 2,
        Kind::CU_GRAPH_COND_TYPE_WHILE => p.size == 1,
        Kind::CU_GRAPH_COND_TYPE_SWITCH => (1..=BODIES).contains(&p.size),
        _ => false,
    };
    require(fits)?;
    let here = params::context(front, p.ctx)?;
    let mut world = world(front);
    world.check_dependencies(graph, edges)?;
    let found = world.graph_mut(graph)?;
    let at = found.conditions.iter().position(|handle| *handle == p.handle).ok_or(INVALID)?;
    found.conditions.remove(at);
    let node = world.handle();
    let bodies: Vec<ObjectId> = (0..p.size).map(|_| world.new_graph(Role::Body(node))).collect();
    let params = NodeParams::Conditional(ConditionalNode {
        ctx: here.id,
        handle: p.handle,
        kind: p.type_.0,
        bodies: bodies.clone(),
    });
    let mut shown: Box<[ObjectId]> = bodies.into();
    p.phGraph_out = shown.as_mut_ptr().cast();
    world.insert(node, Node::new(graph, params, Given::Bodies(shown)), edges);
    Ok(node)
}

pub unsafe fn cuGraphNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    p: *mut CUgraphNodeParams,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's structure.
    let (params, given) = unsafe { plain(process, p, Some(node)) }?;
    world(process).set(node as u64, params, given)
}

pub unsafe fn cuGraphExecNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *mut CUgraphNodeParams,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    if p.type_ == T::CU_GRAPH_NODE_TYPE_GRAPH {
        // SAFETY: the kind says which member is set.
        return unsafe {
            super::exec_set::cuGraphExecChildGraphNodeSetParams(
                process,
                exec,
                node,
                p.__bindgen_anon_1.graph.graph,
            )
        };
    }
    // SAFETY: the program's structure.
    let (params, _) = unsafe { plain(process, p, Some(node)) }?;
    super::exec_set::set(process, exec, node, params)
}
