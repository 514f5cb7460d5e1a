//! Memory that graphs allocate and free while they run.

use core::ffi::c_void;

use outboard_abi::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraph, CUgraphMem_attribute, CUgraphNode,
    CUmemAllocationType_enum as Allocation, CUmemLocationType_enum as Location,
};
use outboard_wire::graph::NodeParams;

use crate::backend::{Backend, DeviceId, DevicePtr, ObjectId, Result};
use crate::border::{put, require};
use crate::context::{self, Here};
use crate::graph::memory::{add_allocation, add_free};
use crate::graph::model::{Given, INVALID, world};
use crate::graph::{edges_of, named_edges};
use crate::process::{Front, Process};

pub unsafe fn cuGraphAddMemAllocNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    p: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    // SAFETY: null or the program's structure; it gives `count` dependencies.
    let (p, (nodes, _)) = unsafe {
        (p.as_mut().ok_or(INVALID)?, named_edges(dependencies, core::ptr::null(), count)?)
    };
    let node = add_allocation(process, ObjectId(graph as u64), &edges_of(nodes, None)?, p)?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, node as CUgraphNode) }
}

pub unsafe fn cuGraphAddMemFreeNode<B: Backend>(
    process: &'static Process<B>,
    out: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> Result<()> {
    crate::state::ready(process)?;
    require(!out.is_null())?;
    // SAFETY: the program gives `count` dependencies.
    let (nodes, _) = unsafe { named_edges(dependencies, core::ptr::null(), count) }?;
    let node =
        add_free(process, ObjectId(graph as u64), &edges_of(nodes, None)?, DevicePtr(address))?;
    // SAFETY: the program's out parameter.
    unsafe { put(out, node as CUgraphNode) }
}

pub unsafe fn cuGraphMemAllocNodeGetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<()> {
    crate::state::ready(process)?;
    let params = {
        let world = world(process);
        let found = world.node(node as u64)?;
        let (NodeParams::Allocate(allocate), Given::Address(address, access)) =
            (&found.params, &found.given)
        else {
            return Err(INVALID);
        };
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = crate::graph::params::zeroed();
        params.poolProps.allocType = Allocation::CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location.type_ = Location::CU_MEM_LOCATION_TYPE_DEVICE;
        params.poolProps.location.id = crate::state::index_of(process, allocate.device)? as i32;
        params.accessDescs =
            if access.0.is_empty() { core::ptr::null() } else { access.0.as_ptr() };
        params.accessDescCount = access.0.len();
        params.bytesize = allocate.bytes as usize;
        params.dptr = address.0;
        params
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, params) }
}

pub unsafe fn cuGraphMemFreeNodeGetParams<B: Backend>(
    process: &'static Process<B>,
    node: CUgraphNode,
    out: *mut CUdeviceptr,
) -> Result<()> {
    crate::state::ready(process)?;
    let NodeParams::Free { address } = world(process).node(node as u64)?.params else {
        return Err(INVALID);
    };
    // SAFETY: the program's out parameter.
    unsafe { put(out, address.0) }
}

/// The context to ask about a device's graphs in: its primary one, or the current one.
fn somewhere(front: &'static Front, device: CUdevice) -> Result<(Here, DeviceId)> {
    let (index, device) = crate::state::device(front, device)?;
    let here = context::primary(front, index)?.live().or_else(|_| context::current(front))?;
    Ok((here, device.id))
}

pub unsafe fn cuDeviceGraphMemTrim<B: Backend>(
    process: &'static Process<B>,
    device: CUdevice,
) -> Result<()> {
    let (here, device) = somewhere(process, device)?;
    here.note(process.backend.graph_memory_trim(here.id, device))
}

pub unsafe fn cuDeviceGetGraphMemAttribute<B: Backend>(
    process: &'static Process<B>,
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: *mut c_void,
) -> Result<()> {
    let (here, device) = somewhere(process, device)?;
    require(!value.is_null() && attribute.0 <= 3)?;
    let found = here.note(process.backend.graph_memory_get(here.id, device, attribute.0))?;
    // SAFETY: the program's out parameter, 64 bits for each attribute.
    unsafe { put(value.cast::<u64>(), found) }
}

pub unsafe fn cuDeviceSetGraphMemAttribute<B: Backend>(
    process: &'static Process<B>,
    device: CUdevice,
    attribute: CUgraphMem_attribute,
    value: *mut c_void,
) -> Result<()> {
    let (here, device) = somewhere(process, device)?;
    // SAFETY: null or the program's value, 64 bits for each attribute.
    let value = *unsafe { value.cast::<u64>().as_ref() }.ok_or(INVALID)?;
    // Only the high-water marks can be set, and only to 0.
    require(matches!(attribute.0, 1 | 3) && value == 0)?;
    here.note(process.backend.graph_memory_set(here.id, device, attribute.0, value))
}
