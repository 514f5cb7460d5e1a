//! Graphs and their nodes: making, connecting, destroying.

use outboard_abi::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUgraphEdgeData,
    CUgraphNode,
};
use outboard_wire::graph::{HostNode, NodeParams};

use super::edges_of;
use super::model::{Given, INVALID, Role, world};
use crate::backend::{ObjectId, Result};
use crate::border::require;
use crate::process::Front;

/// The structure of today for that of before CUDA 12.
pub(crate) fn newer(p: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS {
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

/// The parameters of a host node.
///
/// # Safety
/// `p` is null or the program's structure.
pub(crate) unsafe fn host_node(p: *const CUDA_HOST_NODE_PARAMS) -> Result<NodeParams> {
    // SAFETY: by the contract above.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    let function = p.fn_.ok_or(INVALID)? as usize as u64;
    Ok(NodeParams::Host(HostNode { function, data: p.userData as u64 }))
}

/// Adds a node with a copy of a graph inside, or, if it is to be `moved`, with the graph itself.
pub(crate) fn add_child(
    front: &'static Front,
    graph: ObjectId,
    nodes: &[CUgraphNode],
    data: Option<&[CUgraphEdgeData]>,
    child: ObjectId,
    moved: bool,
) -> Result<u64> {
    let edges = edges_of(nodes, data)?;
    let mut world = world(front);
    world.check_dependencies(graph, &edges)?;
    world.graph(graph)?;
    let handle = world.handle();
    let inner = if moved {
        require(world.graph(child)?.role == Role::Own && !world.is_within(graph, child))?;
        world.graph_mut(child)?.role = Role::Child(handle);
        child
    } else {
        world.to_be_copied(child)?;
        world.clone_graph(front, child, Role::Child(handle))?
    };
    let params = NodeParams::Child { graph: inner, moved };
    world.insert(handle, super::model::Node::new(graph, params, Given::Nothing), &edges);
    Ok(handle)
}
