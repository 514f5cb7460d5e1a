//! Nodes that belong to the program's graph as a server's driver has it: an allocation's address
//! and a condition's handle were made with it, and are in no other graph.
//!
//! The piece that has them is made of that graph, of which its server knows no other nodes.

use std::collections::{BTreeSet, HashMap, HashSet};

use outboard_abi::CUresult;
use outboard_wire::graph::NodeParams;

use super::flat::Flat;
use super::site::Placed;
use super::split::{Step, TrackOf};
use crate::backend::{ObjectId, ServerId};
use crate::graph::exec::Failure;
use crate::graph::model::{Given, World, world};
use crate::graph::site::of_graph;
use crate::logs::because;
use crate::process::Front;

/// The piece that is made of the program's graph.
pub(super) struct Home {
    pub(super) step: usize,
    pub(super) graph: ObjectId,
    /// Its nodes and those of bodies, which the server knows by the program's names.
    pub(super) names: Vec<(u64, u64)>,
}

/// A node that belongs to its graph.
pub(super) struct Bound {
    place: usize,
    what: &'static str,
}

/// The nodes that belong to their graph.
pub(super) fn bound(nodes: &[Flat]) -> Vec<Bound> {
    let of = |(place, node): (usize, &Flat)| match node.params {
        NodeParams::Allocate(_) => Some(Bound { place, what: "allocates memory" }),
        NodeParams::Conditional(_) => Some(Bound { place, what: "is conditional" }),
        _ => None,
    };
    nodes.iter().enumerate().filter_map(of).collect()
}

/// Lets allocations wait for nothing, so that they are in one piece: all that memory which is there
/// early costs is that it is there. What waits for them waits for what they waited for.
pub(super) fn release_allocations(nodes: &mut [Flat]) {
    let mut released: HashMap<usize, Vec<(usize, [u8; 3])>> = HashMap::new();
    for (place, node) in nodes.iter_mut().enumerate() {
        let inherited = node.before.iter().filter_map(|(first, _)| released.get(first)).flatten();
        let inherited: Vec<_> = inherited.copied().collect();
        for edge in inherited {
            if !node.before.iter().any(|(first, _)| *first == edge.0) {
                node.before.push(edge);
            }
        }
        if matches!(node.params, NodeParams::Allocate(_)) {
            let before = std::mem::take(&mut node.before);
            // Another allocation before it is not what others wait for.
            let others = before.into_iter().filter(|(first, _)| !released.contains_key(first));
            let full = others.map(|(first, _)| (first, [0; 3])).collect();
            released.insert(place, full);
        }
    }
}

impl Home {
    /// The piece that has the bound nodes, of which there are some.
    pub(super) fn of(
        front: &'static Front,
        graph: ObjectId,
        nodes: &[Placed],
        steps: &[Step],
        bound: &[Bound],
    ) -> Result<Home, Failure> {
        let place = bound.first().map_or(0, |bound| bound.place);
        let step = steps.iter().position(|step| step.nodes.contains(&place)).unwrap_or(0);
        let names = steps.get(step).map_or(Vec::new(), |step| {
            step.nodes.iter().filter_map(|node| nodes.get(*node)).map(|node| node.node).collect()
        });
        let names: HashSet<u64> = names.into_iter().collect();
        let world = world(front);
        let all = names.iter().copied().chain(inside(&world, graph));
        let home = Home { step, graph, names: all.map(|node| (node, node)).collect() };
        let outside = bound.iter().find(|bound| !names.contains(&nodes[bound.place].node));
        let server = match steps.get(step).map(|step| step.track) {
            Some(TrackOf::Pieces(server)) => Some(server),
            _ => None,
        };
        let fits = outside.is_none()
            && has_no_others(&world, graph, &names)
            && of_others(front, &world, graph).into_iter().all(|other| Some(other) == server);
        if fits {
            return Ok(home);
        }
        let Some(blamed) = outside.or(bound.first()) else { return Ok(home) };
        because(format!(
            "a node of the graph {}, and the graph has work on several servers: Outboard does this \
             only if all such nodes are on one server, in the graph itself and with nothing of \
             another server between them. Put the work that is on one server into a graph of its own",
            blamed.what
        ));
        let error = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        Err(Failure { node: nodes[blamed.place].node, ..Failure::from(error) })
    }
}

/// Whether a server knows no nodes of the graph but these, which are there without others: no two
/// allocations share an address, and there are no child graphs.
fn has_no_others(world: &World, graph: ObjectId, names: &HashSet<u64>) -> bool {
    let Some(graph) = world.graphs.get(&graph) else { return false };
    let mut addresses = BTreeSet::new();
    graph.nodes.iter().filter_map(|name| Some((name, world.nodes.get(name)?))).all(
        |(name, node)| {
            let is_apart = match &node.given {
                Given::Address(address, _) => addresses.insert(*address),
                _ => true,
            };
            let is_child = matches!(node.params, NodeParams::Child { .. });
            is_apart && !is_child && (!node.sent || names.contains(name))
        },
    ) && names.iter().all(|name| graph.nodes.contains(name))
}

/// The nodes of the bodies of a graph, and of theirs.
fn inside(world: &World, graph: ObjectId) -> Vec<u64> {
    let mut bodies = world.bodies(graph);
    let mut nodes = Vec::new();
    while let Some(body) = bodies.pop() {
        nodes.extend(world.graphs.get(&body).into_iter().flat_map(|body| &body.nodes));
        bodies.extend(world.bodies(body));
    }
    nodes
}

/// The server that knows of the graph, and those with which the bodies of conditional nodes work.
fn of_others(front: &'static Front, world: &World, graph: ObjectId) -> BTreeSet<ServerId> {
    let known = world.graphs.get(&graph).and_then(|graph| graph.mirror.known);
    let bodies = world.bodies(graph).into_iter().flat_map(|body| of_graph(front, world, body));
    known.into_iter().chain(bodies).collect()
}

#[cfg(test)]
mod tests {
    use outboard_wire::graph::AllocateNode;

    use super::*;
    use crate::backend::DeviceId;

    fn node(node: u64, allocates: bool, before: &[usize]) -> Flat {
        let access = Vec::new();
        let memory = AllocateNode { device: DeviceId::new(0), bytes: 1, access };
        let params = if allocates { NodeParams::Allocate(memory) } else { NodeParams::Empty };
        Flat { node, params, before: before.iter().map(|first| (*first, [0; 3])).collect() }
    }

    #[test]
    fn what_waits_for_an_allocation_waits_for_what_that_waited_for() {
        let mut nodes = [
            node(1, false, &[]),
            node(2, true, &[0]),
            node(3, true, &[1]),
            node(4, false, &[2]),
            node(5, false, &[3]),
        ];
        release_allocations(&mut nodes);
        let before = nodes.map(|node| node.before.iter().map(|edge| edge.0).collect::<Vec<_>>());
        assert_eq!(before, [vec![], vec![], vec![], vec![2, 0], vec![3]]);
    }
}
