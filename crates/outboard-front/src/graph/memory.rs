//! Memory that graphs allocate and free while they run. Its addresses are fixed when the nodes are made.

use core::ffi::c_void;
use std::collections::HashMap;

use outboard_abi::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUgraph, CUgraphMem_attribute, CUgraphNode,
    CUmemAllocationType_enum as Allocation, CUmemLocationType_enum as Location,
};
use outboard_wire::graph::{AllocateNode, Edge, NodeParams};

use super::mirror::flush;
use super::model::{Given, INVALID, Node, Plain, world};
use super::{edges_of, named_edges};
use crate::backend::{Backend, ObjectId, Result};
use crate::border::{put, require, slice};
use crate::context::{self, Here};
use crate::memory::{self, Kind};
use crate::process::{Front, Process};

/// Adds a node that allocates, and gives the node and its address.
pub(crate) fn allocate<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: u64,
    edges: &[Edge],
    device: usize,
    bytes: u64,
    access: Vec<(u32, u32)>,
) -> Result<(u64, u64)> {
    require(bytes > 0)?;
    let node = {
        let mut world = world(process);
        world.graph(graph)?;
        world.check_dependencies(graph, edges)?;
        world.handle()
    };
    // The nodes that it waits for must be there.
    flush(process, here, graph)?;
    let ordinal = crate::state::ready(process)?.devices.get(device).ok_or(INVALID)?.ordinal;
    let params = AllocateNode { device: ordinal, bytes, access };
    let made = process.backend.graph_allocate(here.id, ObjectId(graph), node, edges.to_vec(), params.clone());
    let address = here.note(made)?;
    let given = Given::Address(address, Plain(Vec::new()));
    let mut fresh = Node::new(graph, NodeParams::Allocate(params), given);
    fresh.sent = true;
    {
        let mut world = world(process);
        world.insert_known(node, fresh, edges);
        world.memory.hold(&vec![(address, false)]);
    }
    memory::insert(process, here, address, bytes, Kind::Graph);
    Ok((node, address))
}

/// How many graphs and executables allocate each address: while there is one, freeing it ends only what a launch has allocated.
#[derive(Debug, Default)]
pub(crate) struct Held(HashMap<u64, u32>);

/// What a graph or an executable allocates: addresses, and whether it also frees them. Two nodes may have one address, the second after
/// the first was freed.
pub(super) type Allocates = Vec<(u64, bool)>;

impl Held {
    pub(super) fn hold(&mut self, allocates: &Allocates) {
        allocates.iter().for_each(|(address, _)| *self.0.entry(*address).or_default() += 1);
    }

    /// A graph or an executable is gone. When it was the last, memory that it also freed goes with it; other memory stays the program's to
    /// free.
    pub(super) fn let_go(&mut self, front: &'static Front, allocates: &Allocates) {
        for (address, freed) in allocates {
            let Some(count) = self.0.get_mut(address) else { continue };
            *count -= 1;
            if *count == 0 {
                self.0.remove(address);
                if *freed {
                    memory::remove(front, *address, |kind| kind == Kind::Graph);
                }
            }
        }
    }
}

/// Whether memory is of a graph or an executable that is still there: freeing it ends only what a launch has allocated.
pub(crate) fn is_owned(front: &'static Front, address: u64) -> bool {
    world(front).memory.0.contains_key(&address)
}

/// What nodes allocate.
pub(super) fn allocated<'a>(nodes: impl Iterator<Item = &'a Node>) -> Allocates {
    let (mut addresses, mut frees) = (Vec::new(), HashMap::<u64, usize>::new());
    for node in nodes {
        match (&node.params, &node.given) {
            (NodeParams::Free { address }, _) => *frees.entry(*address).or_default() += 1,
            (_, Given::Address(address, _)) => addresses.push(*address),
            _ => {}
        }
    }
    let allocations = |address| addresses.iter().filter(|other| **other == address).count();
    addresses.iter().map(|at| (*at, frees.get(at).is_some_and(|frees| *frees >= allocations(*at)))).collect()
}

/// Whether memory can be freed by a node: it must be a graph's.
pub(crate) fn check_free(front: &'static Front, address: u64) -> Result<()> {
    let (base, _, allocation) = memory::find(front, address).ok_or(INVALID)?;
    require(base == address && allocation.kind == Kind::Graph)
}

/// Adds the node that a structure describes, and fills in its address.
pub(super) fn add_allocation<B: Backend>(
    process: &'static Process<B>,
    graph: u64,
    edges: &[Edge],
    p: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<u64> {
    let props = &p.poolProps;
    require(props.allocType == Allocation::CU_MEM_ALLOCATION_TYPE_PINNED && props.handleTypes.0 == 0)?;
    require(props.location.type_ == Location::CU_MEM_LOCATION_TYPE_DEVICE)?;
    let (device, _) = crate::state::device(process, props.location.id)?;
    // SAFETY: the program gives that many.
    let access = unsafe { slice(p.accessDescs, p.accessDescCount) }?;
    let access_of = |desc: &outboard_abi::CUmemAccessDesc| {
        require(desc.location.type_ == Location::CU_MEM_LOCATION_TYPE_DEVICE)?;
        Ok((crate::state::device(process, desc.location.id)?.1.ordinal, desc.flags.0))
    };
    let plain = access.iter().map(access_of).collect::<Result<Vec<_>>>()?;
    let here = context::current(process)?;
    let (node, address) = allocate(process, &here, graph, edges, device, p.bytesize as u64, plain)?;
    if let Given::Address(_, given) = &mut world(process).node_mut(node)?.given {
        given.0 = access.to_vec();
    }
    p.dptr = address;
    Ok(node)
}

pub(super) fn add_free(front: &'static Front, graph: u64, edges: &[Edge], address: u64) -> Result<u64> {
    check_free(front, address)?;
    world(front).add(graph, edges, NodeParams::Free { address }, Given::Nothing)
}

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
    let (p, (nodes, _)) = unsafe { (p.as_mut().ok_or(INVALID)?, named_edges(dependencies, core::ptr::null(), count)?) };
    let node = add_allocation(process, graph as u64, &edges_of(nodes, None)?, p)?;
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
    let node = add_free(process, graph as u64, &edges_of(nodes, None)?, address)?;
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
        let (NodeParams::Allocate(allocate), Given::Address(address, access)) = (&found.params, &found.given) else {
            return Err(INVALID);
        };
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = super::params::zeroed();
        params.poolProps.allocType = Allocation::CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location.type_ = Location::CU_MEM_LOCATION_TYPE_DEVICE;
        let devices = &crate::state::ready(process)?.devices;
        let ordinal = devices.iter().position(|device| device.ordinal == allocate.device).unwrap_or(0);
        params.poolProps.location.id = ordinal as i32;
        params.accessDescs = if access.0.is_empty() { core::ptr::null() } else { access.0.as_ptr() };
        params.accessDescCount = access.0.len();
        params.bytesize = allocate.bytes as usize;
        params.dptr = *address;
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
    let NodeParams::Free { address } = world(process).node(node as u64)?.params else { return Err(INVALID) };
    // SAFETY: the program's out parameter.
    unsafe { put(out, address) }
}

/// The context to ask about a device's graphs in: its primary one, or the current one.
fn somewhere(front: &'static Front, device: CUdevice) -> Result<(Here, u32)> {
    let (index, device) = crate::state::device(front, device)?;
    let here = context::primary(front, index)?.live().or_else(|_| context::current(front))?;
    Ok((here, device.ordinal))
}

pub unsafe fn cuDeviceGraphMemTrim<B: Backend>(process: &'static Process<B>, device: CUdevice) -> Result<()> {
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
