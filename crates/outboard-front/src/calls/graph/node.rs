//! Parameters and attributes of nodes.

use core::ffi::c_void;

use outboard_abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent,
    CUfunction, CUgraphNode, CUhostFn, CUkernel, CUkernelNodeAttrID, CUkernelNodeAttrValue,
    CUlaunchAttributeID_enum as L, CUresult,
};
use outboard_wire::graph::{HostNode, KernelNode, NodeParams};

use crate::backend::{Backend, Result};
use crate::border::{put, require};
use crate::graph::build::{host_node, newer};
use crate::graph::model::{Given, INVALID, World, world};
use crate::graph::node::{ATTRIBUTES, context_of, copy_params, fill_params, kernel_again};
use crate::graph::params;
use crate::process::{Front, Process};

/// The structure of a kernel node. What it points to is the node's, until its parameters change.
pub(super) fn kernel_params(
    front: &'static Front,
    world: &mut World,
    node: CUgraphNode,
) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    let found = world.node_mut(node as u64)?;
    let NodeParams::Kernel(kernel) = &found.params else { return Err(INVALID) };
    let Given::Kernel { function, kernel: named, pointers, .. } = &mut found.given else {
        return Err(INVALID);
    };
    let shape = crate::function::by_id(front, kernel.function.0)?;
    if pointers.is_empty() {
        let base = kernel.params.as_ptr() as u64;
        *pointers = shape.info.params.iter().map(|(offset, _)| base + u64::from(*offset)).collect();
    }
    let params =
        if pointers.is_empty() { core::ptr::null_mut() } else { pointers.as_mut_ptr().cast() };
    let context =
        if *named == 0 { core::ptr::null_mut() } else { shape.context.handle as CUcontext };
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: *function as CUfunction,
        gridDimX: kernel.grid[0],
        gridDimY: kernel.grid[1],
        gridDimZ: kernel.grid[2],
        blockDimX: kernel.block[0],
        blockDimY: kernel.block[1],
        blockDimZ: kernel.block[2],
        sharedMemBytes: kernel.shared,
        kernelParams: params,
        extra: core::ptr::null_mut(),
        kern: *named as CUkernel,
        ctx: context,
    })
}

pub unsafe fn cuGraphKernelNodeGetParams_v2<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    let params = kernel_params(process, &mut world(process), node)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, params) }
}

pub unsafe fn cuGraphKernelNodeGetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUDA_KERNEL_NODE_PARAMS_v1,
) -> Result<()> {
    crate::state::ready(process)?;
    let p = kernel_params(process, &mut world(process), node)?;
    let older = CUDA_KERNEL_NODE_PARAMS_v1 {
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
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, older) }
}

pub unsafe fn cuGraphKernelNodeSetParams_v2<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    p: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's parameters.
    let (params, given) = unsafe { kernel_again(process, node, p) }?;
    world(process).set(node as u64, params, given)
}

pub unsafe fn cuGraphKernelNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    p: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Result<()> {
    // SAFETY: null or the program's structure.
    let p = newer(unsafe { p.as_ref() }.ok_or(INVALID)?);
    // SAFETY: as this function's.
    unsafe { cuGraphKernelNodeSetParams_v2(process, node, &raw const p) }
}

fn kernel_of(world: &mut World, node: CUgraphNode) -> Result<&mut KernelNode> {
    match &mut world.node_mut(node as u64)?.params {
        NodeParams::Kernel(kernel) => Ok(kernel),
        _ => Err(INVALID),
    }
}

pub unsafe fn cuGraphKernelNodeGetAttribute<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    out: *mut CUkernelNodeAttrValue,
) -> Result<()> {
    crate::state::ready(process)?;
    require(ATTRIBUTES.contains(&attribute))?;
    let mut world = world(process);
    let kernel = kernel_of(&mut world, node)?;
    let value = kernel
        .attributes
        .iter()
        .find(|(id, _)| *id == attribute.0)
        .map_or([0; 64], |(_, value)| *value);
    // SAFETY: the program's out parameter: a union of 64 bytes.
    unsafe { put(out.cast::<[u8; 64]>(), value) }
}

pub unsafe fn cuGraphKernelNodeSetAttribute<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    attribute: CUkernelNodeAttrID,
    value: *const CUkernelNodeAttrValue,
) -> Result<()> {
    crate::state::ready(process)?;
    require(ATTRIBUTES.contains(&attribute))?;
    if attribute == L::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    // SAFETY: null or the program's union, all of whose bytes `pad` covers.
    let value = unsafe { value.cast::<[u8; 64]>().as_ref() }.ok_or(INVALID)?;
    let mut world = world(process);
    let kernel = kernel_of(&mut world, node)?;
    kernel.attributes.retain(|(id, _)| *id != attribute.0);
    kernel.attributes.push((attribute.0, *value));
    world.changed(node as u64)
}

pub unsafe fn cuGraphKernelNodeCopyAttributes<B: Backend>(
    process: &'static Process<B>,
    dst: CUgraphNode,
    src: CUgraphNode,
) -> Result<()> {
    crate::state::ready(process)?;
    let mut world = world(process);
    let attributes = kernel_of(&mut world, src)?.attributes.clone();
    kernel_of(&mut world, dst)?.attributes = attributes;
    world.changed(dst as u64)
}

pub unsafe fn cuGraphMemcpyNodeGetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUDA_MEMCPY3D,
) -> Result<()> {
    crate::state::ready(process)?;
    let (copy, _) = copy_params(&world(process), node)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, copy) }
}

pub unsafe fn cuGraphMemcpyNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
) -> Result<()> {
    crate::state::ready(process)?;
    let (_, ctx) = copy_params(&world(process), node)?;
    // SAFETY: null or the program's structure.
    let (params, given) =
        params::copy_node(process, unsafe { copy.as_ref() }.ok_or(INVALID)?, ctx)?;
    world(process).set(node as u64, params, given)
}

pub unsafe fn cuGraphMemsetNodeGetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUDA_MEMSET_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    let (fill, _) = fill_params(&world(process), node)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, fill) }
}

pub unsafe fn cuGraphMemsetNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    fill: *const CUDA_MEMSET_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    let (_, ctx) = fill_params(&world(process), node)?;
    // SAFETY: null or the program's structure.
    let (params, given) =
        params::fill_node(process, unsafe { fill.as_ref() }.ok_or(INVALID)?, ctx)?;
    world(process).set(node as u64, params, given)
}

/// The function and argument of a host node, as C has them.
pub(super) fn host_params(world: &World, node: CUgraphNode) -> Result<CUDA_HOST_NODE_PARAMS> {
    let NodeParams::Host(HostNode { function, data }) = world.node(node as u64)?.params else {
        return Err(INVALID);
    };
    // SAFETY: the number was made from such a function pointer, or is 0, which is `None`.
    let function = unsafe { core::mem::transmute::<usize, CUhostFn>(function as usize) };
    Ok(CUDA_HOST_NODE_PARAMS { fn_: function, userData: data as *mut c_void })
}

pub unsafe fn cuGraphHostNodeGetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUDA_HOST_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    let host = host_params(&world(process), node)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, host) }
}

pub unsafe fn cuGraphHostNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    p: *const CUDA_HOST_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: as this function's.
    let params = unsafe { host_node(p) }?;
    world(process).set(node as u64, params, Given::Nothing)
}

pub unsafe fn cuGraphEventRecordNodeGetEvent<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUevent,
) -> Result<()> {
    crate::state::ready(process)?;
    let NodeParams::EventRecord { event } = world(process).node(node as u64)?.params else {
        return Err(INVALID);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, event.0 as CUevent) }
}

pub unsafe fn cuGraphEventRecordNodeSetEvent<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::to_record(process, event)?.id();
    world(process).set(node as u64, NodeParams::EventRecord { event }, Given::Nothing)
}

pub unsafe fn cuGraphEventWaitNodeGetEvent<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUevent,
) -> Result<()> {
    crate::state::ready(process)?;
    let NodeParams::EventWait { event } = world(process).node(node as u64)?.params else {
        return Err(INVALID);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, event.0 as CUevent) }
}

pub unsafe fn cuGraphEventWaitNodeSetEvent<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    event: CUevent,
) -> Result<()> {
    let event = crate::event::resolve(process, event)?.id();
    world(process).set(node as u64, NodeParams::EventWait { event }, Given::Nothing)
}

/// The structure of a node of memory operations. What it points to is the node's.
pub(super) fn batch_params(
    world: &mut World,
    node: CUgraphNode,
) -> Result<CUDA_BATCH_MEM_OP_NODE_PARAMS> {
    let found = world.node_mut(node as u64)?;
    let NodeParams::Batch(batch) = &found.params else { return Err(INVALID) };
    let flags = batch.flags;
    let ctx = context_of(&found.given);
    let Given::Batch(operations, _) = &mut found.given else { return Err(INVALID) };
    let operations = &mut operations.0;
    Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx,
        count: operations.len() as u32,
        paramArray: operations.as_mut_ptr(),
        flags,
    })
}

pub unsafe fn cuGraphBatchMemOpNodeGetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    let batch = batch_params(&mut world(process), node)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, batch) }
}

pub unsafe fn cuGraphBatchMemOpNodeSetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    p: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    // SAFETY: null or the program's structure.
    let p = unsafe { p.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the program's operations.
    let (params, given) =
        unsafe { params::batch_node(process, p.ctx, p.paramArray, p.count, p.flags) }?;
    world(process).set(node as u64, params, given)
}
