//! Changes of a graph that have not been sent to the device yet.

use std::collections::BTreeSet;

use crate::backend::ObjectId;
use outboard_wire::graph::{Edge, GraphEdit, NodeParams};

use crate::backend::ServerId;
use crate::parts::graph::model::World;

/// Changes since the device was last told.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// The server that knows of the graph, if one does.
    pub(crate) known: Option<ServerId>,
    /// Nodes that it does not know, oldest first.
    pub(crate) fresh: Vec<u64>,
    /// Changes among nodes that it knows, in order.
    pub(crate) log: Vec<GraphEdit>,
    /// Nodes that it knows with other parameters.
    pub(crate) changed: BTreeSet<u64>,
}

impl Mirror {
    pub(super) fn added(&mut self, node: u64) {
        self.fresh.push(node);
    }

    pub(crate) fn removed(&mut self, node: u64, sent: bool) {
        if sent {
            self.log.push(GraphEdit::Remove { node });
            self.changed.remove(&node);
            return;
        }
        self.fresh.retain(|other| *other != node);
        let is_of = |from: &Edge, to: &u64| from.node == node || *to == node;
        self.log.retain(|edit| match edit {
            GraphEdit::Connect { from, to } | GraphEdit::Disconnect { from, to } => {
                !is_of(from, to)
            }
            _ => true,
        });
    }

    /// An edge whose second node is not known travels with that node.
    pub(super) fn connected(&mut self, from: Edge, to: u64, sent: bool) {
        if sent {
            self.log.push(GraphEdit::Connect { from, to });
        }
    }

    pub(super) fn disconnected(&mut self, from: Edge, to: u64, sent: bool) {
        if sent {
            self.log.push(GraphEdit::Disconnect { from, to });
        }
    }

    pub(super) fn changed(&mut self, node: u64) {
        self.changed.insert(node);
    }
}

impl World {
    /// The graphs inside the conditional nodes of a graph.
    pub(crate) fn bodies(&self, graph: ObjectId) -> Vec<ObjectId> {
        let Some(graph) = self.graphs.get(&graph) else { return Vec::new() };
        let nodes = graph.nodes.iter().filter_map(|node| self.nodes.get(node));
        let bodies = nodes.filter_map(|node| match &node.params {
            NodeParams::Conditional(node) => Some(node.bodies.clone()),
            _ => None,
        });
        bodies.flatten().collect()
    }
}
