//! Changes of the client's graphs.

use std::sync::Arc;

use outboard_wire::graph::{GraphEdit, NodeParams};
use outboard_wire::{DevicePtr, ObjectId};

use super::Node;
use crate::answer::Outcome;
use crate::worker::Worker;

impl Worker {
    /// Memory is freed: its address means nothing any more, unless it is a graph's.
    pub(crate) fn forget_allocation(&mut self, address: DevicePtr) -> Outcome {
        match self.graphs.allocate_at(address) {
            true => self.memory.allocations.check(address, 1),
            false => self.memory.allocations.remove(address),
        }
    }

    /// Applies a change. A failure is kept until an executable is to be made.
    pub(crate) fn apply(&mut self, graph: ObjectId, edit: GraphEdit) -> Outcome {
        let node = match &edit {
            GraphEdit::Add { node, .. }
            | GraphEdit::Set { node, .. }
            | GraphEdit::Remove { node } => *node,
            GraphEdit::Connect { to, .. } | GraphEdit::Disconnect { to, .. } => *to,
        };
        self.graphs.graph(graph)?;
        if let Err(error) = self.try_apply(graph, edit) {
            tracing::debug!(node, error = error.0, "a node of a graph failed");
            if let Some(graph) = self.graphs.all.get_mut(&graph) {
                graph.error.get_or_insert((error, node));
            }
        }
        Ok(())
    }

    fn try_apply(&mut self, graph: ObjectId, edit: GraphEdit) -> Outcome {
        match edit {
            GraphEdit::Add { node, dependencies, params } => {
                self.add_node(graph, node, dependencies, params)
            }
            GraphEdit::Set { node, params } => self.set_node(graph, node, params),
            GraphEdit::Remove { node } => {
                self.graphs.remove_node(self.table, graph, node).map(drop)
            }
            GraphEdit::Connect { from, to } => {
                self.graphs.edge(self.table, graph, from, to, true)?;
                self.graphs.with_node(graph, to, |node| node.dependencies.push(from))
            }
            GraphEdit::Disconnect { from, to } => {
                self.graphs.edge(self.table, graph, from, to, false)?;
                self.graphs
                    .with_node(graph, to, |node| node.dependencies.retain(|edge| *edge != from))
            }
        }
    }

    /// Puts a node with other parameters in the place of one.
    pub(super) fn replace_node(
        &mut self,
        graph: ObjectId,
        name: u64,
        params: NodeParams,
    ) -> Outcome {
        let dependencies = self.graphs.graph(graph)?.node(name)?.dependencies.clone();
        let dependents = self.graphs.remove_node(self.table, graph, name)?;
        self.add_node(graph, name, dependencies, params)?;
        for (to, edge) in dependents {
            self.graphs.edge(self.table, graph, edge, to, true)?;
            self.graphs.with_node(graph, to, |node| node.dependencies.push(edge))?;
        }
        Ok(())
    }

    /// Each executable has memory of its own for what it exchanges with the client: two may run at
    /// the same time. Nodes whose memory an executable has get other.
    pub(crate) fn renew_host_parts(&mut self, graph: ObjectId) -> Outcome {
        let taken = |node: &&Node| {
            node.host.iter().any(|part| part.has_memory() && Arc::strong_count(part) > 1)
        };
        for graph in self.graphs.with_inside(graph)? {
            let found = self.graphs.graph(graph)?;
            let nodes: Vec<(u64, NodeParams)> = found
                .nodes
                .iter()
                .filter(|(_, node)| taken(node))
                .map(|(name, node)| (*name, node.params.clone()))
                .collect();
            nodes
                .into_iter()
                .try_for_each(|(name, params)| self.replace_node(graph, name, params))?;
        }
        Ok(())
    }
}
