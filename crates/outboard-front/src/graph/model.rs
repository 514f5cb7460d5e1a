//! The graphs of the process: nodes, what they do, and what waits for what.
//!
//! One lock guards them all, and the captures that build some of them. It is held for bookkeeping
//! only; changes for the device are collected under it and sent by the calling thread
//! ([`super::mirror`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use outboard_abi::CUresult;
use outboard_wire::graph::{Edge, NodeParams};
use parking_lot::MutexGuard;

use crate::backend::{ObjectId, Result};
use crate::process::Front;

pub(crate) use crate::parts::graph::model::{Given, INVALID, Node, Plain, Role, World};

/// Takes the lock.
pub(crate) fn world(front: &'static Front) -> MutexGuard<'static, World> {
    front.graphs.world.lock()
}

impl World {
    /// Takes a node and its edges out of its graph.
    pub(crate) fn remove(&mut self, front: &'static Front, handle: u64) {
        let Some(node) = self.nodes.remove(&handle) else { return };
        for edge in &node.dependencies {
            if let Some(first) = self.nodes.get_mut(&edge.node) {
                first.dependents.retain(|other| other.node != handle);
            }
        }
        for edge in &node.dependents {
            if let Some(second) = self.nodes.get_mut(&edge.node) {
                second.dependencies.retain(|other| other.node != handle);
            }
        }
        if let Some(graph) = self.graphs.get_mut(&node.graph) {
            graph.nodes.remove(&handle);
            graph.mirror.removed(handle, node.sent);
        }
        self.drop_inner(front, &node.params);
    }

    /// Forgets the graphs inside a node.
    fn drop_inner(&mut self, front: &'static Front, params: &NodeParams) {
        match params {
            NodeParams::Child { graph, .. } => self.drop_graph(front, *graph),
            NodeParams::Conditional(node) => {
                node.bodies.iter().for_each(|body| self.drop_graph(front, *body))
            }
            NodeParams::Captured { ctx, graph } => {
                if let Entry::Occupied(mut nodes) = self.captured.entry(*graph) {
                    *nodes.get_mut() -= 1;
                    if *nodes.get() == 0 {
                        nodes.remove();
                        self.gone.push((ctx.server(), *graph));
                    }
                }
            }
            _ => {}
        }
    }

    /// Forgets a graph with all its nodes. Its user objects are the caller's to release, see
    /// [`super::object`].
    pub(crate) fn drop_graph(&mut self, front: &'static Front, handle: ObjectId) {
        let Some(graph) = self.graphs.remove(&handle) else { return };
        super::object::release_all(front, &graph.objects);
        let nodes: Vec<Node> =
            graph.nodes.iter().filter_map(|node| self.nodes.remove(node)).collect();
        self.memory.let_go(front, &crate::parts::graph::memory::allocated(nodes.iter()));
        nodes.iter().for_each(|node| self.drop_inner(front, &node.params));
        if let Some(server) = graph.mirror.known {
            self.gone.push((server, handle));
        }
    }

    /// Copies a graph: the copy's nodes remember theirs.
    pub(crate) fn clone_graph(
        &mut self,
        front: &'static Front,
        original: ObjectId,
        role: Role,
    ) -> Result<ObjectId> {
        let nodes: Vec<u64> = self.graph(original)?.nodes.iter().copied().collect();
        let objects = self.graph(original)?.objects.clone();
        let copy = self.new_graph(role);
        let mut names: HashMap<u64, u64> = HashMap::new();
        for &node in &nodes {
            let (params, given) = {
                let node = self.node(node)?;
                (node.params.clone(), node.given.clone())
            };
            let handle = self.handle();
            let params = self.clone_inner(front, handle, params)?;
            let given = match given {
                Given::Kernel { function, kernel, context, .. } => {
                    Given::Kernel { function, kernel, context, pointers: Vec::new() }
                }
                other => other,
            };
            let mut fresh = Node::new(copy, params, given);
            fresh.origin = node;
            self.insert(handle, fresh, &[]);
            names.insert(node, handle);
        }
        // Edges last: a node may wait for a younger one.
        for &node in &nodes {
            let edges = self.node(node)?.dependencies.clone();
            let handle = names[&node];
            for edge in edges {
                let from = names[&edge.node];
                self.node_mut(handle)?.dependencies.push(Edge { node: from, ports: edge.ports });
                self.node_mut(from)?.dependents.push(Edge { node: handle, ports: edge.ports });
            }
        }
        super::object::retain_all(front, &objects);
        let graph = self.graph_mut(copy)?;
        graph.origin = original;
        graph.objects = objects;
        Ok(copy)
    }

    /// Parameters for the copy of a node: graphs inside it are copied too.
    fn clone_inner(
        &mut self,
        front: &'static Front,
        node: u64,
        params: NodeParams,
    ) -> Result<NodeParams> {
        Ok(match params {
            NodeParams::Child { graph, .. } => NodeParams::Child {
                graph: self.clone_graph(front, graph, Role::Child(node))?,
                moved: false,
            },
            NodeParams::Conditional(_) | NodeParams::Allocate(_) | NodeParams::Free { .. } => {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            params => params,
        })
    }
}
