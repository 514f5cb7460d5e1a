//! Other parameters for single nodes of an executable; its graph stays as it is.

use outboard_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphNode,
};
use outboard_wire::graph::{CopyNode, NodeParams, Place};

use super::build::{host_node, newer};
use super::exec::resolve;
use super::mirror::flush;
use super::model::{INVALID, world};
use super::node::kernel_again;
use super::params;
use crate::Driver;
use crate::backend::{ObjectId, Result};
use crate::border::require;
use crate::context;

/// Gives a node of an executable other parameters, if they are of a kind that it can take.
pub(super) fn set<D: Driver>(exec: CUgraphExec, node: CUgraphNode, params: NodeParams) -> Result<()> {
    let exec = resolve(exec)?;
    {
        let world = world();
        let found = world.node(node as u64)?;
        require(world.is_within(found.graph, exec.graph) && fits(&found.params, &params))?;
    }
    let here = context::current()?;
    here.note(D::get().graph_exec_set(here.id, ObjectId(exec.id), node as u64, params))
}

/// What an executable was laid out for stays: kinds, contexts, and where a copy's sides are.
fn fits(old: &NodeParams, new: &NodeParams) -> bool {
    fn side(place: &Place) -> core::mem::Discriminant<Place> {
        core::mem::discriminant(place)
    }
    let rows = |copy: &CopyNode| (copy.extent[1] > 1 || copy.extent[2] > 1, side(&copy.dst), side(&copy.src), copy.ctx);
    match (old, new) {
        (NodeParams::Kernel(old), NodeParams::Kernel(new)) => old.ctx == new.ctx,
        (NodeParams::Copy(old), NodeParams::Copy(new)) => rows(old) == rows(new),
        (NodeParams::Fill(old), NodeParams::Fill(new)) => old.ctx == new.ctx && (old.height > 1) == (new.height > 1),
        (old, new) => core::mem::discriminant(old) == core::mem::discriminant(new),
    }
}

pub(crate) unsafe fn cuGraphExecKernelNodeSetParams_v2<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's parameters.
    let (params, _) = unsafe { kernel_again::<D>(node, p) }?;
    set::<D>(exec, node, params)
}

pub(crate) unsafe fn cuGraphExecKernelNodeSetParams<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let p = newer(unsafe { p.as_ref() }.ok_or(INVALID)?);
    // SAFETY: as this function's.
    unsafe { cuGraphExecKernelNodeSetParams_v2::<D>(exec, node, &raw const p) }
}

pub(crate) unsafe fn cuGraphExecMemcpyNodeSetParams<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let (params, _) = params::copy_node(unsafe { copy.as_ref() }.ok_or(INVALID)?, ctx)?;
    set::<D>(exec, node, params)
}

pub(crate) unsafe fn cuGraphExecMemsetNodeSetParams<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    fill: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let (params, _) = params::fill_node(unsafe { fill.as_ref() }.ok_or(INVALID)?, ctx)?;
    set::<D>(exec, node, params)
}

pub(crate) unsafe fn cuGraphExecHostNodeSetParams<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_HOST_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: as this function's.
    set::<D>(exec, node, unsafe { host_node(p) }?)
}

pub(crate) unsafe fn cuGraphExecEventRecordNodeSetEvent<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::to_record(event)?.id().0;
    set::<D>(exec, node, NodeParams::EventRecord { event })
}

pub(crate) unsafe fn cuGraphExecEventWaitNodeSetEvent<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::resolve(event)?.id().0;
    set::<D>(exec, node, NodeParams::EventWait { event })
}

pub(crate) unsafe fn cuGraphExecBatchMemOpNodeSetParams<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready()?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's operations.
    let (params, _) = unsafe { params::batch_node(p.ctx, p.paramArray, p.count, p.flags) }?;
    set::<D>(exec, node, params)
}

pub(crate) unsafe fn cuGraphExecChildGraphNodeSetParams<D: Driver>(
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> Result<()> {
    crate::state::ready()?;
    let here = context::current()?;
    world().to_be_copied(child as u64)?;
    flush::<D>(&here, child as u64)?;
    set::<D>(exec, node, NodeParams::Child { graph: child as u64, moved: false })
}
