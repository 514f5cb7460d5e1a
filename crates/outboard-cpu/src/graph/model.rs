//! A graph as the front has told it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, DevicePtr};
use outboard_wire::graph::{Edge, GraphEdit, NodeParams};

/// A node.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) params: NodeParams,
    pub(super) dependencies: Vec<Edge>,
    /// The address of a node that allocates.
    pub(super) address: u64,
}

/// A graph.
pub(super) struct Model {
    _ctx: ContextId,
    pub(super) nodes: BTreeMap<u64, Node>,
    /// The first edit that made no sense, and its node.
    pub(super) error: Option<(CUresult, u64)>,
    /// Address and bytes of nodes that are about to be added.
    addresses: HashMap<u64, (u64, u64)>,
}

impl Model {
    pub(super) fn new(ctx: ContextId) -> Model {
        Model { _ctx: ctx, nodes: BTreeMap::new(), error: None, addresses: HashMap::new() }
    }

    pub(super) fn apply(&mut self, edit: GraphEdit) {
        let node = match &edit {
            GraphEdit::Add { node, .. }
            | GraphEdit::Set { node, .. }
            | GraphEdit::Remove { node } => *node,
            GraphEdit::Connect { to, .. } | GraphEdit::Disconnect { to, .. } => *to,
        };
        if self.try_apply(edit).is_none() {
            self.error.get_or_insert((CUresult::CUDA_ERROR_INVALID_VALUE, node));
        }
    }

    fn try_apply(&mut self, edit: GraphEdit) -> Option<()> {
        match edit {
            GraphEdit::Add { node, dependencies, params } => {
                let address = self.addresses.get(&node).map_or(0, |(address, _)| *address);
                self.nodes.insert(node, Node { params, dependencies, address });
            }
            GraphEdit::Set { node, params } => self.nodes.get_mut(&node)?.params = params,
            GraphEdit::Remove { node } => {
                self.nodes.remove(&node)?;
                self.nodes
                    .values_mut()
                    .for_each(|other| other.dependencies.retain(|edge| edge.node != node));
            }
            GraphEdit::Connect { from, to } => self.nodes.get_mut(&to)?.dependencies.push(from),
            GraphEdit::Disconnect { from, to } => {
                let dependencies = &mut self.nodes.get_mut(&to)?.dependencies;
                let at = dependencies.iter().position(|edge| *edge == from)?;
                dependencies.remove(at);
            }
        }
        Some(())
    }

    /// The nodes in an order in which they can run: of several that can, the oldest first. `None`
    /// if they go in a circle.
    pub(super) fn order(&self) -> Option<Vec<u64>> {
        let mut missing: HashMap<u64, usize> = HashMap::new();
        let mut behind: HashMap<u64, Vec<u64>> = HashMap::new();
        for (&node, found) in &self.nodes {
            missing.insert(node, found.dependencies.len());
            for edge in &found.dependencies {
                self.nodes.get(&edge.node)?;
                behind.entry(edge.node).or_default().push(node);
            }
        }
        let mut ready: BTreeSet<u64> =
            missing.iter().filter(|(_, count)| **count == 0).map(|(node, _)| *node).collect();
        let mut order = Vec::with_capacity(self.nodes.len());
        while let Some(node) = ready.pop_first() {
            order.push(node);
            for next in behind.remove(&node).unwrap_or_default() {
                let count = missing.get_mut(&next)?;
                *count -= 1;
                if *count == 0 {
                    ready.insert(next);
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    /// Notes the memory of a node that is about to be added.
    pub(super) fn allocated(&mut self, node: u64, address: u64, bytes: u64) {
        self.addresses.insert(node, (address, bytes));
    }

    /// Memory that is free again, on every way, before a node with these dependencies.
    pub(super) fn reusable(&self, dependencies: &[Edge], bytes: u64) -> Option<u64> {
        let mut before: HashSet<u64> = HashSet::new();
        let mut open: Vec<u64> = dependencies.iter().map(|edge| edge.node).collect();
        while let Some(node) = open.pop() {
            if before.insert(node) {
                open.extend(self.nodes.get(&node)?.dependencies.iter().map(|edge| edge.node));
            }
        }
        let mut users: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (node, (address, _)) in &self.addresses {
            users.entry(*address).or_default().push(*node);
        }
        let large_enough = |address: u64| {
            self.addresses.values().any(|(known, len)| *known == address && *len >= bytes)
        };
        // Each allocation of the block before this one, and as many frees: it is free now.
        let is_free = |address: u64, users: &[u64]| {
            let frees = self.nodes.iter().filter(|(node, found)| {
                before.contains(node)
                    && matches!(found.params, NodeParams::Free { address: DevicePtr(freed) } if freed == address)
            });
            users.iter().all(|user| before.contains(user)) && frees.count() == users.len()
        };
        users
            .iter()
            .find(|(address, users)| large_enough(**address) && is_free(**address, users))
            .map(|(address, _)| *address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(node: u64) -> Edge {
        Edge { node, ports: [0; 3] }
    }

    fn graph(nodes: &[(u64, &[u64])]) -> Model {
        let mut model = Model::new(ContextId(1));
        for (node, dependencies) in nodes {
            let dependencies = dependencies.iter().copied().map(edge).collect();
            model.apply(GraphEdit::Add { node: *node, dependencies, params: NodeParams::Empty });
        }
        model
    }

    #[test]
    fn nodes_run_behind_what_they_wait_for() {
        let mut model = graph(&[(1, &[]), (2, &[1]), (3, &[1]), (4, &[2, 3])]);
        assert_eq!(model.order(), Some(vec![1, 2, 3, 4]));
        model.apply(GraphEdit::Connect { from: edge(3), to: 2 });
        assert_eq!(model.order(), Some(vec![1, 3, 2, 4]));
        model.apply(GraphEdit::Disconnect { from: edge(3), to: 2 });
        model.apply(GraphEdit::Remove { node: 1 });
        assert_eq!(model.order(), Some(vec![2, 3, 4]));
        assert!(model.error.is_none());
    }

    #[test]
    fn nonsense_is_found_out() {
        let mut model = graph(&[(1, &[]), (2, &[1])]);
        model.apply(GraphEdit::Connect { from: edge(2), to: 1 });
        assert_eq!(model.order(), None);
        model.apply(GraphEdit::Remove { node: 7 });
        assert_eq!(model.error, Some((CUresult::CUDA_ERROR_INVALID_VALUE, 7)));
        assert_eq!(graph(&[(1, &[9])]).order(), None);
    }
}
