//! The servers that nodes work with.

use std::collections::BTreeSet;

use outboard_wire::graph::{CopyNode, NodeParams, Place};

use super::model::World;
use crate::backend::{ContextId, ObjectId, Result, ServerId};
use crate::copy::describe::{in_array, in_memory};
use crate::copy::{Copy, End, Operand};
use crate::memory;
use crate::process::Front;

/// Whether the program sees devices of several servers.
fn has_several(front: &'static Front) -> bool {
    let first = front.state.ready().ok().and_then(|ready| ready.limits.first());
    first.is_some_and(|limits| limits.beside_others)
}

/// The server that has device memory; none for other memory.
fn of_place(front: &'static Front, place: &Place) -> Option<ServerId> {
    match place {
        Place::Host(_) => None,
        Place::Device(rows) => {
            memory::find(front, rows.address.unified()).map(|(_, _, allocation)| allocation.server)
        }
        Place::Array { array, .. } => {
            front.arrays.table.get(array.0).map(|array| array.id.server())
        }
    }
}

fn of_event(front: &'static Front, event: ObjectId) -> Option<ServerId> {
    front.events.table.get(event.0).map(|event| event.ctx.server())
}

/// The servers that have the sides of a copy.
pub(crate) fn of_sides(front: &'static Front, copy: &CopyNode) -> [Option<ServerId>; 2] {
    [of_place(front, &copy.dst), of_place(front, &copy.src)]
}

/// The server on which a node that copies nothing works; none if any will do.
pub(crate) fn of_work(front: &'static Front, params: &NodeParams) -> Option<ServerId> {
    match params {
        NodeParams::EventRecord { event } | NodeParams::EventWait { event } => {
            of_event(front, *event)
        }
        NodeParams::Allocate(node) => Some(node.device.server()),
        NodeParams::Free { address } => {
            memory::find(front, address.unified()).map(|(_, _, allocation)| allocation.server)
        }
        params => params.context().map(ContextId::server),
    }
}

/// The servers that a node works with.
pub(crate) fn of_node(
    front: &'static Front,
    params: &NodeParams,
) -> impl Iterator<Item = ServerId> {
    let context = params.context().map(ContextId::server);
    // In a process with one server, nothing is looked up.
    let others = match params {
        _ if !has_several(front) => [None; 2],
        NodeParams::Copy(copy) => of_sides(front, copy),
        params => [of_work(front, params), None],
    };
    context.into_iter().chain(others.into_iter().flatten())
}

/// The server that knows of a graph or of one inside it, and those with which nodes work that it
/// does not know as they are.
pub(crate) fn of_graph(
    front: &'static Front,
    world: &World,
    graph: ObjectId,
) -> BTreeSet<ServerId> {
    let mut servers = BTreeSet::new();
    let mut graphs = vec![graph];
    while let Some(graph) = graphs.pop().and_then(|graph| world.graphs.get(&graph)) {
        servers.extend(graph.mirror.known);
        let news = graph.mirror.fresh.iter().chain(&graph.mirror.changed);
        let news = news.filter_map(|node| world.nodes.get(node));
        servers.extend(news.flat_map(|node| of_node(front, &node.params)));
        for node in graph.nodes.iter().filter_map(|node| world.nodes.get(node)) {
            match &node.params {
                NodeParams::Child { graph, .. } => graphs.push(*graph),
                NodeParams::Conditional(node) => graphs.extend(&node.bodies),
                _ => {}
            }
        }
    }
    servers
}

/// The copy that a node makes, as a call would describe it.
pub(crate) fn description(front: &'static Front, copy: &CopyNode) -> Result<Copy> {
    let [width, height, depth] = copy.extent;
    let end = |place: &Place| -> Result<End> {
        let none = (0, 0, 0);
        match *place {
            Place::Host(rows) => {
                in_memory(Operand::Host(rows.address), rows.pitch, rows.height, none)
            }
            Place::Device(rows) => {
                in_memory(Operand::Device(rows.address), rows.pitch, rows.height, none)
            }
            Place::Array { array, at: [x, y, z], .. } => {
                Ok(in_array(crate::array::resolve(front, array.0 as _)?, (x, y, z)))
            }
        }
    };
    let extent = crate::backend::Extent { width, height, depth };
    Ok(Copy { dst: end(&copy.dst)?, src: end(&copy.src)?, extent })
}
