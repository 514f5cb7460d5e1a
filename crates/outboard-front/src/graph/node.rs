//! Parameters and attributes of nodes: given back as they were given, and changed.

use outboard_abi::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraphNode,
    CUlaunchAttributeID_enum as L,
};
use outboard_wire::graph::NodeParams;

use super::model::{Given, INVALID, World, world};
use super::params;
use crate::backend::{Backend, Result};
use crate::border::require;
use crate::process::Process;

/// The attributes that a kernel node has.
pub(crate) const ATTRIBUTES: [L; 11] = [
    L::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    L::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    L::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    L::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    L::CU_LAUNCH_ATTRIBUTE_PRIORITY,
    L::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    L::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    L::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    L::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    L::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
    L::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE,
];

/// A context as the program knows it.
pub(crate) fn context_of(given: &Given) -> CUcontext {
    match given {
        Given::Kernel { context, .. }
        | Given::Copy(_, context)
        | Given::Context(context)
        | Given::Batch(_, context) => *context as CUcontext,
        Given::Nothing | Given::Bodies(_) | Given::Address(..) => core::ptr::null_mut(),
    }
}

/// The parameters for a kernel node that exists: it keeps its attributes and its context.
///
/// # Safety
/// The structure's parameters are as cuda.h says.
pub(crate) unsafe fn kernel_again<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    p: &CUDA_KERNEL_NODE_PARAMS,
) -> Result<(NodeParams, Given)> {
    let (attributes, ctx) = match &world(process).node(node as u64)?.params {
        NodeParams::Kernel(kernel) => (kernel.attributes.clone(), kernel.ctx),
        _ => return Err(INVALID),
    };
    // SAFETY: by the contract above.
    let (params, given) = unsafe { params::kernel_node(process, p, attributes) }?;
    match &params {
        NodeParams::Kernel(kernel) => require(kernel.ctx == ctx)?,
        _ => return Err(INVALID),
    }
    Ok((params, given))
}

pub(crate) fn copy_params(world: &World, node: CUgraphNode) -> Result<(CUDA_MEMCPY3D, CUcontext)> {
    let found = world.node(node as u64)?;
    match &found.given {
        Given::Copy(copy, _) => Ok((copy.0, context_of(&found.given))),
        _ => Err(INVALID),
    }
}

pub(crate) fn fill_params(
    world: &World,
    node: CUgraphNode,
) -> Result<(CUDA_MEMSET_NODE_PARAMS, CUcontext)> {
    let found = world.node(node as u64)?;
    match &found.params {
        NodeParams::Fill(fill) => Ok((params::fill_params(fill), context_of(&found.given))),
        _ => Err(INVALID),
    }
}
