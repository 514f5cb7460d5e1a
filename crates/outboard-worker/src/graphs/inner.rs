//! Graphs inside nodes: bodies of conditional nodes, graphs moved into a node, and the driver's
//! copies of graphs.

use std::collections::HashSet;

use outboard_abi::{
    CUgraphChildGraphNodeOwnership_enum as Ownership, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType_enum, CUresult,
};
use outboard_driver::{Table, call};
use outboard_wire::ObjectId;
use outboard_wire::graph::NodeParams;

use super::Graphs;
use super::node::{Built, Spot};
use super::params::{INVALID, zeroed};

/// The graphs that a node has inside, themselves and not as copies.
fn inside(params: &NodeParams) -> &[ObjectId] {
    match params {
        NodeParams::Conditional(node) => &node.bodies,
        NodeParams::Child { graph, moved: true } => std::slice::from_ref(graph),
        _ => &[],
    }
}

impl Graphs {
    /// Adds a node into which a graph moves.
    pub(super) fn build_moved(
        &mut self,
        table: &Table,
        spot: &Spot<'_>,
        child: ObjectId,
    ) -> Result<Built, CUresult> {
        let found = self.graph(child)?;
        let (native, inner) = (found.native.get(), found.inner);
        if inner || native == spot.graph {
            return Err(INVALID);
        }
        let mut p: CUgraphNodeParams = zeroed();
        p.type_ = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_GRAPH;
        p.__bindgen_anon_1.graph.graph = native;
        p.__bindgen_anon_1.graph.ownership = Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
        let (before, count, data) = (spot.before.as_ptr(), spot.before.len(), core::ptr::null());
        let mut node: CUgraphNode = core::ptr::null_mut();
        call!(
            table,
            cuGraphAddNode_v2(&raw mut node, spot.graph, before, data, count, &raw mut p)
        )?;
        if let Some(found) = self.all.get_mut(&child) {
            found.inner = true;
        }
        Ok(Built::one(node))
    }

    /// A graph and those inside it, each once, whatever the client says.
    pub(crate) fn with_inside(&self, graph: ObjectId) -> Result<Vec<ObjectId>, CUresult> {
        self.graph(graph)?;
        let (mut known, mut found) = (HashSet::from([graph]), vec![graph]);
        let mut at = 0;
        while let Some(graph) = found.get(at) {
            at += 1;
            let nodes = self.all.get(graph).into_iter().flat_map(|graph| graph.nodes.values());
            let more: Vec<ObjectId> =
                nodes.flat_map(|node| inside(&node.params)).copied().collect();
            found.extend(more.into_iter().filter(|graph| known.insert(*graph)));
        }
        Ok(found)
    }

    /// Bytes that these graphs allocate on each device.
    pub(crate) fn allocated_by(&self, graphs: &[ObjectId]) -> Vec<(u32, u64)> {
        let mut all: Vec<(u32, u64)> = Vec::new();
        let nodes = graphs
            .iter()
            .filter_map(|graph| self.all.get(graph))
            .flat_map(|graph| graph.nodes.values());
        for node in nodes {
            if let NodeParams::Allocate(memory) = &node.params {
                match all.iter_mut().find(|(device, _)| *device == memory.device.ordinal()) {
                    Some((_, bytes)) => *bytes = bytes.saturating_add(memory.bytes),
                    None => all.push((memory.device.ordinal(), memory.bytes)),
                }
            }
        }
        all
    }

    /// The driver destroys what is inside a node with the node.
    pub(super) fn forget_inside(&mut self, params: &NodeParams) {
        let mut open = inside(params).to_vec();
        while let Some(graph) = open.pop() {
            if self.all.get(&graph).is_some_and(|graph| graph.inner)
                && let Some(gone) = self.all.remove(&graph)
            {
                open.extend(gone.nodes.values().flat_map(|node| inside(&node.params)));
            }
        }
    }

    /// The driver's nodes for a node of a graph or of one inside: the first, the main one and the
    /// last.
    pub(super) fn nodes_within(
        &self,
        table: &Table,
        graph: ObjectId,
        name: u64,
    ) -> Result<[CUgraphNode; 3], CUresult> {
        let natives = |graph: ObjectId| {
            let node = self.all.get(&graph)?.nodes.get(&name)?;
            Some([node.first.get(), node.main.get(), node.last.get()])
        };
        let graphs = self.with_inside(graph)?;
        if let Some(found) = graphs.iter().find_map(|graph| natives(*graph)) {
            return Ok(found);
        }
        // In a copy that the driver has made of a graph the nodes have other handles. The ways to
        // such copies that are still open: the graph, and the child-graph nodes that lead there.
        let mut open: Vec<(ObjectId, Vec<CUgraphNode>)> =
            graphs.into_iter().map(|graph| (graph, Vec::new())).collect();
        let mut known = HashSet::new();
        while let Some((graph, way)) = open.pop() {
            if let Some(found) = natives(graph) {
                let mut copied = found;
                for node in &mut copied {
                    *node = self.in_copy(table, &way, *node)?;
                }
                return Ok(copied);
            }
            for node in self.graph(graph)?.nodes.values() {
                if let NodeParams::Child { graph, moved: false } = &node.params
                    && known.insert(*graph)
                {
                    open.push((*graph, way.iter().copied().chain([node.main.get()]).collect()));
                }
            }
        }
        Err(INVALID)
    }

    /// What has become of a node in the copy of its graph that is inside the last of these nodes,
    /// each in a copy inside the one before.
    fn in_copy(
        &self,
        table: &Table,
        way: &[CUgraphNode],
        node: CUgraphNode,
    ) -> Result<CUgraphNode, CUresult> {
        let Some((child, before)) = way.split_last() else { return Ok(node) };
        let child = self.in_copy(table, before, *child)?;
        let (mut graph, mut found) = (core::ptr::null_mut(), core::ptr::null_mut());
        call!(table, cuGraphChildGraphNodeGetGraph(child, &raw mut graph))?;
        call!(table, cuGraphNodeFindInClone(&raw mut found, node, graph))?;
        Ok(found)
    }
}
