//! A graph as one list of nodes, without child graphs.

use std::collections::{BTreeMap, BTreeSet};

use outboard_wire::graph::{Edge, NodeParams};

use crate::backend::ObjectId;
use crate::graph::model::World;

/// A node that is no child graph.
#[derive(Debug, PartialEq)]
pub(super) struct Flat {
    pub(super) node: u64,
    pub(super) params: NodeParams,
    /// What it waits for: places in the list before its own, and how.
    pub(super) before: Vec<(usize, [u8; 3])>,
}

/// What is behind a child graph: all nodes that end it, or if it is empty, what is before it.
type Exits = Vec<usize>;

/// The nodes of a graph and of the child graphs in it, each behind those that it waits for. Of
/// graphs that were built in the same way, the order is the same.
pub(super) fn flat(world: &World, graph: ObjectId) -> Vec<Flat> {
    let mut list = Vec::new();
    add(world, graph, &Vec::new(), &mut list);
    list
}

/// Adds the nodes of a graph that begins behind `entry`.
fn add(world: &World, graph: ObjectId, entry: &Exits, list: &mut Vec<Flat>) -> Exits {
    let mut exits: BTreeMap<u64, Exits> = BTreeMap::new();
    let mut ends = BTreeSet::new();
    let nodes = in_order(world, graph);
    for handle in &nodes {
        let Some(node) = world.nodes.get(handle) else { continue };
        let mut before: BTreeMap<usize, [u8; 3]> = BTreeMap::new();
        for Edge { node, ports } in &node.dependencies {
            let known = exits.get(node).map_or(&[][..], |known| known);
            let is_child = matches!(
                world.nodes.get(node).map(|node| &node.params),
                Some(NodeParams::Child { .. })
            );
            let ports = if is_child { [0; 3] } else { *ports };
            before.extend(known.iter().map(|at| (*at, ports)));
        }
        if node.dependencies.is_empty() {
            before.extend(entry.iter().map(|at| (*at, [0; 3])));
        }
        let behind = match &node.params {
            NodeParams::Child { graph, .. } => {
                add(world, *graph, &before.into_keys().collect(), list)
            }
            params => {
                let before = before.into_iter().collect();
                list.push(Flat { node: *handle, params: params.clone(), before });
                vec![list.len() - 1]
            }
        };
        if node.dependents.is_empty() {
            ends.extend(&behind);
        }
        exits.insert(*handle, behind);
    }
    if nodes.is_empty() { entry.clone() } else { ends.into_iter().collect() }
}

/// The nodes of a graph, each behind those that it waits for, and else the older ones first.
fn in_order(world: &World, graph: ObjectId) -> Vec<u64> {
    let Some(graph) = world.graphs.get(&graph) else { return Vec::new() };
    let dependencies = |node: &u64| world.nodes.get(node).map_or(0, |node| node.dependencies.len());
    let mut open: BTreeMap<u64, usize> =
        graph.nodes.iter().map(|node| (*node, dependencies(node))).collect();
    let mut ready: BTreeSet<u64> =
        open.iter().filter(|(_, count)| **count == 0).map(|(node, _)| *node).collect();
    let mut order = Vec::new();
    while let Some(node) = ready.pop_first() {
        order.push(node);
        for edge in world.nodes.get(&node).map_or(&[][..], |node| &node.dependents) {
            if let Some(count) = open.get_mut(&edge.node) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    ready.insert(edge.node);
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::model::{Given, Node, Role};

    fn edge(node: u64) -> Edge {
        Edge { node, ports: [0; 3] }
    }

    fn empty(world: &mut World, graph: ObjectId, before: &[u64]) -> u64 {
        let edges: Vec<Edge> = before.iter().copied().map(edge).collect();
        world.add(graph, &edges, NodeParams::Empty, Given::Nothing).expect("they are there")
    }

    fn child(world: &mut World, graph: ObjectId, inner: ObjectId, before: &[u64]) -> u64 {
        let edges: Vec<Edge> = before.iter().copied().map(edge).collect();
        let params = NodeParams::Child { graph: inner, moved: true };
        let node = world.add(graph, &edges, params, Given::Nothing).expect("they are there");
        world.graph_mut(inner).expect("it is there").role = Role::Child(node);
        node
    }

    fn shape(list: &[Flat]) -> Vec<(u64, Vec<u64>)> {
        let before = |flat: &Flat| flat.before.iter().map(|(at, _)| list[*at].node).collect();
        list.iter().map(|flat| (flat.node, before(flat))).collect()
    }

    #[test]
    fn an_older_node_may_come_behind_a_younger_one() {
        let mut world = World::default();
        let graph = world.new_graph(Role::Own);
        let a = empty(&mut world, graph, &[]);
        let b = empty(&mut world, graph, &[]);
        world.connect(graph, edge(b), a).expect("no circle");
        assert_eq!(shape(&flat(&world, graph)), [(b, vec![]), (a, vec![b])]);
    }

    #[test]
    fn child_graphs_are_laid_open() {
        let mut world = World::default();
        let [graph, inner, nothing] = [(); 3].map(|()| world.new_graph(Role::Own));
        let (one, other) = (empty(&mut world, inner, &[]), empty(&mut world, inner, &[]));
        let last = empty(&mut world, inner, &[one]);
        let a = empty(&mut world, graph, &[]);
        let node = child(&mut world, graph, inner, &[a]);
        let b = empty(&mut world, graph, &[node]);
        // What is empty is in nobody's way, and in nobody's order.
        let gap = child(&mut world, graph, nothing, &[b, a]);
        let c = empty(&mut world, graph, &[gap]);
        assert_eq!(
            shape(&flat(&world, graph)),
            [
                (a, vec![]),
                (one, vec![a]),
                (other, vec![a]),
                (last, vec![one]),
                (b, vec![other, last]),
                (c, vec![a, b]),
            ]
        );
    }

    #[test]
    fn edges_keep_their_data() {
        let mut world = World::default();
        let graph = world.new_graph(Role::Own);
        let a = empty(&mut world, graph, &[]);
        let early = Edge { node: a, ports: [1, 0, 1] };
        let node = Node::new(graph, NodeParams::Empty, Given::Nothing);
        let b = world.handle();
        world.insert(b, node, &[early]);
        assert_eq!(flat(&world, graph)[1].before, [(0, [1, 0, 1])]);
    }
}
