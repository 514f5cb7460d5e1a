//! Other parameters for single nodes of an executable; its graph stays as it is.

use outboard_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent,
    CUgraph, CUgraphExec, CUgraphNode,
};
use outboard_wire::graph::NodeParams;

use crate::backend::{Backend, ObjectId, Result};
use crate::context;
use crate::graph::build::{host_node, newer};
use crate::graph::exec::{Made, resolve};
use crate::graph::exec_set;
use crate::graph::mirror::flush;
use crate::graph::model::{INVALID, world};
use crate::graph::node::kernel_again;
use crate::graph::params;
use crate::process::Process;
use crate::spread;

/// Gives a node of an executable other parameters, if they are of a kind that it can take.
pub(super) fn set<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    params: NodeParams,
) -> Result<()> {
    let (exec, node) = (resolve(process, exec)?, node as u64);
    exec_set::check(process, &exec, node, &params)?;
    match &exec.made {
        Made::Whole(whole) => exec_set::set(process, whole, node, params),
        Made::Spread(pieces) => spread::set(process, pieces, node, params),
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
    let event = crate::event::to_record(process, event)?.id();
    set(process, exec, node, NodeParams::EventRecord { event })
}

pub unsafe fn cuGraphExecEventWaitNodeSetEvent<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::resolve(process, event)?.id();
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
    let (params, _) =
        unsafe { params::batch_node(process, p.ctx, p.paramArray, p.count, p.flags) }?;
    set(process, exec, node, params)
}

pub unsafe fn cuGraphExecChildGraphNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    exec: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> Result<()> {
    crate::state::ready(process)?;
    let (exec, node, child) = (resolve(process, exec)?, node as u64, ObjectId(child as u64));
    world(process).to_be_copied(child)?;
    let params = NodeParams::Child { graph: child, moved: false };
    exec_set::check(process, &exec, node, &params)?;
    match &exec.made {
        Made::Whole(whole) => {
            let here = context::on(process, context::current(process)?, whole.server)?;
            flush(process, &here, child)?;
            exec_set::set(process, whole, node, params)
        }
        Made::Spread(pieces) => spread::set_child(process, pieces, node, child),
    }
}
