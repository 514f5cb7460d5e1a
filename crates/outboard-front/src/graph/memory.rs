//! Memory that graphs allocate and free while they run. Its addresses are fixed when the nodes are
//! made.

use std::collections::BTreeSet;

use outboard_abi::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUmemAllocationType_enum as Allocation,
    CUmemLocationType_enum as Location,
};
use outboard_wire::graph::{AllocateNode, Edge, GraphEdit, NodeParams};

use super::mirror::{flush, flush_part};
use super::model::{Given, INVALID, Node, Plain, world};
use super::site::of_graph;
use crate::backend::{Backend, DeviceId, DevicePtr, ObjectId, Result};
use crate::border::{require, slice};
use crate::context::{self, Here};
use crate::memory::{self, Kind};
use crate::process::{Front, Process};
use crate::several::one_server;

pub(crate) use crate::parts::graph::memory::{Allocates, Held};

/// Adds a node that allocates, and gives the node and its address.
pub(crate) fn allocate<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
    edges: &[Edge],
    device: usize,
    bytes: u64,
    access: Vec<(DeviceId, u32)>,
) -> Result<(u64, DevicePtr)> {
    require(bytes > 0)?;
    let node = {
        let mut world = world(process);
        world.graph(graph)?;
        world.check_dependencies(graph, edges)?;
        world.handle()
    };
    let known = before_allocation(process, here, graph, edges)?;
    let device = crate::state::device_id(process, device)?;
    one_server(
        here.id.server(),
        access.iter().map(|(device, _)| device.server()).chain([device.server()]),
    )?;
    let params = AllocateNode { device, bytes, access };
    let later: Vec<GraphEdit> = edges
        .iter()
        .filter(|edge| !known.contains(edge))
        .map(|edge| GraphEdit::Connect { from: *edge, to: node })
        .collect();
    let made = process.backend.graph_allocate(here.id, graph, node, known, params.clone());
    let address = here.note(made)?;
    let given = Given::Address(address, Plain(Vec::new()));
    let mut fresh = Node::new(graph, NodeParams::Allocate(params), given);
    fresh.sent = true;
    {
        let mut world = world(process);
        world.insert_known(node, fresh, edges);
        world.graph_mut(graph)?.mirror.log.extend(later);
        world.memory.hold(&vec![(address, false)]);
    }
    memory::insert(process, here, address.unified(), bytes, Kind::Graph);
    Ok((node, address))
}

/// Has the server know the nodes for which an allocation waits; which of them it does. Those of
/// other servers, and of a graph that has some, it need not know yet.
fn before_allocation<B: Backend>(
    process: &'static Process<B>,
    here: &Here,
    graph: ObjectId,
    edges: &[Edge],
) -> Result<Vec<Edge>> {
    let own = here.id.server();
    let (servers, known) = {
        let world = world(process);
        (of_graph(process, &world, graph), world.graph(graph)?.mirror.known)
    };
    if servers.iter().all(|server| *server == own) {
        flush(process, here, graph)?;
        return Ok(edges.to_vec());
    }
    one_server(own, known)?;
    flush_part(process, here, graph, &BTreeSet::new())?;
    let world = world(process);
    let is_known = |edge: &&Edge| world.nodes.get(&edge.node).is_some_and(|node| node.sent);
    Ok(edges.iter().filter(is_known).copied().collect())
}

impl Held {
    /// A graph or an executable is gone. When it was the last, memory that it also freed goes with
    /// it; other memory stays the program's to free.
    pub(crate) fn let_go(&mut self, front: &'static Front, allocates: &Allocates) {
        for (address, freed) in allocates {
            let Some(count) = self.0.get_mut(address) else { continue };
            *count -= 1;
            if *count == 0 {
                self.0.remove(address);
                if *freed {
                    memory::remove(front, address.unified(), |kind| kind == Kind::Graph);
                }
            }
        }
    }
}

/// Whether memory is of a graph or an executable that is still there: freeing it ends only what a
/// launch has allocated.
pub(crate) fn is_owned(front: &'static Front, address: DevicePtr) -> bool {
    world(front).memory.0.contains_key(&address)
}

/// Whether memory can be freed by a node: it must be a graph's.
pub(crate) fn check_free(front: &'static Front, address: DevicePtr) -> Result<()> {
    let (base, _, allocation) = memory::find(front, address.unified()).ok_or(INVALID)?;
    require(base == address.unified() && allocation.kind == Kind::Graph)
}

/// Adds the node that a structure describes, and fills in its address.
pub(crate) fn add_allocation<B: Backend>(
    process: &'static Process<B>,
    graph: ObjectId,
    edges: &[Edge],
    p: &mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Result<u64> {
    let props = &p.poolProps;
    require(
        props.allocType == Allocation::CU_MEM_ALLOCATION_TYPE_PINNED && props.handleTypes.0 == 0,
    )?;
    require(props.location.type_ == Location::CU_MEM_LOCATION_TYPE_DEVICE)?;
    let (device, _) = crate::state::device(process, props.location.id)?;
    // SAFETY: the program gives that many.
    let access = unsafe { slice(p.accessDescs, p.accessDescCount) }?;
    let access_of = |desc: &outboard_abi::CUmemAccessDesc| {
        require(desc.location.type_ == Location::CU_MEM_LOCATION_TYPE_DEVICE)?;
        Ok((crate::state::device(process, desc.location.id)?.1.id, desc.flags.0))
    };
    let plain = access.iter().map(access_of).collect::<Result<Vec<_>>>()?;
    let here = context::current(process)?;
    let (node, address) = allocate(process, &here, graph, edges, device, p.bytesize as u64, plain)?;
    if let Given::Address(_, given) = &mut world(process).node_mut(node)?.given {
        given.0 = access.to_vec();
    }
    p.dptr = address.0;
    Ok(node)
}

pub(crate) fn add_free(
    front: &'static Front,
    graph: ObjectId,
    edges: &[Edge],
    address: DevicePtr,
) -> Result<u64> {
    check_free(front, address)?;
    world(front).add(graph, edges, NodeParams::Free { address }, Given::Nothing)
}
