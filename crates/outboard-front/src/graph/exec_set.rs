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
use crate::backend::{Backend, ObjectId, Result};
use crate::border::require;
use crate::context;
use crate::process::Process;

/// Gives a node of an executable other parameters, if they are of a kind that it can take.
pub(super) fn set<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: NodeParams,
) -> Result<()> {
    let exec = resolve(process, exec)?;
    {
        let world = world(process);
        let found = world.node(node as u64)?;
        require(world.is_within(found.graph, exec.graph) && fits(&found.params, &params))?;
    }
    let here = context::current(process)?;
    here.note(process.backend.graph_exec_set(here.id, ObjectId(exec.id), node as u64, params))
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

pub unsafe fn cuGraphExecKernelNodeSetParams_v2<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's parameters.
    let (params, _) = unsafe { kernel_again(process, node, p) }?;
    set(process, exec, node, params)
}

pub unsafe fn cuGraphExecKernelNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let p = newer(unsafe { p.as_ref() }.ok_or(INVALID)?);
    // SAFETY: as this function's.
    unsafe { cuGraphExecKernelNodeSetParams_v2(process, exec, node, &raw const p) }
}

pub unsafe fn cuGraphExecMemcpyNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let (params, _) = params::copy_node(process, unsafe { copy.as_ref() }.ok_or(INVALID)?, ctx)?;
    set(process, exec, node, params)
}

pub unsafe fn cuGraphExecMemsetNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    fill: *const CUDA_MEMSET_NODE_PARAMS,
    ctx: CUcontext,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let (params, _) = params::fill_node(process, unsafe { fill.as_ref() }.ok_or(INVALID)?, ctx)?;
    set(process, exec, node, params)
}

pub unsafe fn cuGraphExecHostNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_HOST_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: as this function's.
    set(process, exec, node, unsafe { host_node(p) }?)
}

pub unsafe fn cuGraphExecEventRecordNodeSetEvent<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::to_record(process, event)?.id().0;
    set(process, exec, node, NodeParams::EventRecord { event })
}

pub unsafe fn cuGraphExecEventWaitNodeSetEvent<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::resolve(process, event)?.id().0;
    set(process, exec, node, NodeParams::EventWait { event })
}

pub unsafe fn cuGraphExecBatchMemOpNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's operations.
    let (params, _) = unsafe { params::batch_node(process, p.ctx, p.paramArray, p.count, p.flags) }?;
    set(process, exec, node, params)
}

pub unsafe fn cuGraphExecChildGraphNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> Result<()> {
    crate::state::ready(process)?;
    let here = context::current(process)?;
    world(process).to_be_copied(child as u64)?;
    flush(process, &here, child as u64)?;
    set(process, exec, node, NodeParams::Child { graph: child as u64, moved: false })
}
