//! The graphs of the process: nodes, their operations and their dependencies.

use std::collections::{BTreeSet, HashMap};

use outboard_abi::{CUDA_MEMCPY3D, CUmemAccessDesc, CUresult, CUstreamBatchMemOpParams};
use outboard_wire::graph::{Edge, NodeParams};

use crate::backend::{DevicePtr, ObjectId, Result, ServerId};
use crate::border::require;
use crate::parts::capture::state::Captures;
use crate::parts::graph::memory::{Allocates, Held};
use crate::parts::graph::mirror::Mirror;

pub(crate) const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Handles of graphs, nodes and executables: numbers that look like addresses, above those of
/// [`crate::handles`], and never used again.
pub(crate) const FIRST_HANDLE: u64 = 0x7800_0000_0000;

/// The role of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The program's own.
    Own,
    /// Inside a child-graph node.
    Child(u64),
    /// Inside a conditional node.
    Body(u64),
    /// A piece of an executable that several servers have.
    Piece,
}

/// A graph.
#[derive(Debug)]
pub(crate) struct Graph {
    /// For `cuGraphGetId` and printing.
    pub(crate) serial: u32,
    /// Its nodes, oldest first: handles only grow.
    pub(crate) nodes: BTreeSet<u64>,
    pub(crate) role: Role,
    /// User objects that it holds, and how many times.
    pub(crate) objects: Vec<(u64, u32)>,
    pub(crate) mirror: Mirror,
    /// The graph it was cloned from.
    pub(crate) origin: ObjectId,
    /// Values for conditional nodes that none of its nodes uses yet.
    pub(crate) conditions: Vec<u64>,
}

/// Something that is only a number here, though C calls it a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Plain<T>(pub(crate) T);

// SAFETY: only the thread that receives it dereferences its pointers.
unsafe impl<T> Send for Plain<T> {}

/// What only the front knows of a node: what the program gave, to be given back.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Nothing,
    /// Handles of function, kernel (or 0) and context; the offset of each parameter, once queried.
    Kernel {
        function: u64,
        kernel: u64,
        context: u64,
        pointers: Vec<u64>,
    },
    /// The structure, and the context's handle.
    Copy(Box<Plain<CUDA_MEMCPY3D>>, u64),
    /// The context's handle.
    Context(u64),
    Batch(Plain<Vec<CUstreamBatchMemOpParams>>, u64),
    /// The handles of the graphs inside, where the program was told that they are.
    #[expect(dead_code, reason = "the program has its address")]
    Bodies(Box<[ObjectId]>),
    /// The address, and the devices that may access it.
    Address(DevicePtr, Plain<Vec<CUmemAccessDesc>>),
}

/// A node of a graph.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) graph: ObjectId,
    pub(crate) params: NodeParams,
    pub(crate) given: Given,
    pub(crate) dependencies: Vec<Edge>,
    pub(crate) dependents: Vec<Edge>,
    /// The node that it was cloned from, or 0.
    pub(crate) origin: u64,
    /// The device knows it.
    pub(crate) sent: bool,
}

/// All graphs.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) graphs: HashMap<ObjectId, Graph>,
    pub(crate) nodes: HashMap<u64, Node>,
    pub(crate) captures: Captures,
    pub(crate) memory: Held,
    /// Graphs that servers know and that are gone here.
    pub(crate) gone: Vec<(ServerId, ObjectId)>,
    /// Graphs that servers have captured, and how many nodes run each.
    pub(crate) captured: HashMap<ObjectId, usize>,
    handles: u64,
    serials: u32,
}

impl Node {
    pub(crate) fn new(graph: ObjectId, params: NodeParams, given: Given) -> Node {
        Node {
            graph,
            params,
            given,
            dependencies: Vec::new(),
            dependents: Vec::new(),
            origin: 0,
            sent: false,
        }
    }
}

impl World {
    pub(crate) fn handle(&mut self) -> u64 {
        self.handles += 1;
        FIRST_HANDLE + (self.handles << 4)
    }

    pub(crate) fn new_graph(&mut self, role: Role) -> ObjectId {
        let handle = ObjectId(self.handle());
        self.serials += 1;
        let graph = Graph {
            serial: self.serials,
            nodes: BTreeSet::new(),
            role,
            objects: Vec::new(),
            mirror: Mirror::default(),
            origin: ObjectId::NONE,
            conditions: Vec::new(),
        };
        self.graphs.insert(handle, graph);
        handle
    }

    pub(crate) fn graph(&self, handle: ObjectId) -> Result<&Graph> {
        self.graphs.get(&handle).ok_or(INVALID)
    }

    pub(crate) fn graph_mut(&mut self, handle: ObjectId) -> Result<&mut Graph> {
        self.graphs.get_mut(&handle).ok_or(INVALID)
    }

    pub(crate) fn node(&self, handle: u64) -> Result<&Node> {
        self.nodes.get(&handle).ok_or(INVALID)
    }

    pub(crate) fn node_mut(&mut self, handle: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&handle).ok_or(INVALID)
    }

    /// Adds a node behind others of the graph.
    pub(crate) fn add(
        &mut self,
        graph: ObjectId,
        dependencies: &[Edge],
        params: NodeParams,
        given: Given,
    ) -> Result<u64> {
        self.check_dependencies(graph, dependencies)?;
        self.graph(graph)?;
        let handle = self.handle();
        self.insert(handle, Node::new(graph, params, given), dependencies);
        Ok(handle)
    }

    /// Dependencies must be nodes of the graph, each named once.
    pub(crate) fn check_dependencies(&self, graph: ObjectId, dependencies: &[Edge]) -> Result<()> {
        for (index, edge) in dependencies.iter().enumerate() {
            require(self.node(edge.node)?.graph == graph)?;
            require(
                dependencies.len() > 64
                    || !dependencies[..index].iter().any(|other| other.node == edge.node),
            )?;
        }
        Ok(())
    }

    /// Puts a node in its graph. The dependencies have been checked.
    pub(crate) fn insert(&mut self, handle: u64, node: Node, dependencies: &[Edge]) {
        let graph = node.graph;
        self.insert_known(handle, node, dependencies);
        if let Some(graph) = self.graphs.get_mut(&graph) {
            graph.mirror.added(handle);
        }
    }

    /// As [`World::insert`], for a node that the device knows already.
    pub(crate) fn insert_known(&mut self, handle: u64, mut node: Node, dependencies: &[Edge]) {
        for edge in dependencies {
            if let Some(first) = self.nodes.get_mut(&edge.node) {
                first.dependents.push(Edge { node: handle, ports: edge.ports });
            }
        }
        if let NodeParams::Captured { graph, .. } = &node.params {
            *self.captured.entry(*graph).or_default() += 1;
        }
        node.dependencies = dependencies.to_vec();
        if let Some(graph) = self.graphs.get_mut(&node.graph) {
            graph.nodes.insert(handle);
        }
        self.nodes.insert(handle, node);
    }

    /// What launches of a graph allocate, those of graphs inside it too.
    pub(crate) fn allocates(&self, graph: ObjectId) -> Allocates {
        let Some(graph) = self.graphs.get(&graph) else { return Vec::new() };
        let nodes = || graph.nodes.iter().filter_map(|node| self.nodes.get(node));
        let mut all = super::memory::allocated(nodes());
        for node in nodes() {
            match &node.params {
                NodeParams::Child { graph, .. } => all.extend(self.allocates(*graph)),
                NodeParams::Conditional(node) => {
                    all.extend(node.bodies.iter().flat_map(|body| self.allocates(*body)))
                }
                _ => {}
            }
        }
        all
    }

    /// Lets `to` wait for `from.node`.
    pub(crate) fn connect(&mut self, graph: ObjectId, from: Edge, to: u64) -> Result<()> {
        require(
            from.node != to
                && self.node(from.node)?.graph == graph
                && self.node(to)?.graph == graph,
        )?;
        // The same edge once more is the program's mistake, and so is a circle.
        require(!self.node(to)?.dependencies.contains(&from))?;
        require(!self.is_behind(from.node, to))?;
        let second = self.node_mut(to)?;
        second.dependencies.push(from);
        let sent = second.sent;
        self.node_mut(from.node)?.dependents.push(Edge { node: to, ports: from.ports });
        self.graph_mut(graph)?.mirror.connected(from, to, sent);
        Ok(())
    }

    /// Lets `to` wait for `from.node` no more.
    pub(crate) fn disconnect(&mut self, graph: ObjectId, from: Edge, to: u64) -> Result<()> {
        require(self.node(from.node)?.graph == graph && self.node(to)?.graph == graph)?;
        let second = self.node_mut(to)?;
        let at = second.dependencies.iter().position(|edge| *edge == from).ok_or(INVALID)?;
        second.dependencies.remove(at);
        let sent = second.sent;
        let back = Edge { node: to, ports: from.ports };
        let first = self.node_mut(from.node)?;
        if let Some(at) = first.dependents.iter().position(|edge| *edge == back) {
            first.dependents.remove(at);
        }
        self.graph_mut(graph)?.mirror.disconnected(from, to, sent);
        Ok(())
    }

    /// Whether `node` comes after `other` by some way.
    pub(crate) fn is_behind(&self, node: u64, other: u64) -> bool {
        self.before(&[node]).contains(&other)
    }

    /// Checks that executables or nodes can be made of a graph, which is so as long as it has not
    /// been moved into a node.
    pub(crate) fn to_be_copied(&self, graph: ObjectId) -> Result<()> {
        let Role::Child(node) = self.graph(graph)?.role else { return Ok(()) };
        let moved = self.nodes.get(&node).map(|node| &node.params);
        require(!matches!(moved, Some(NodeParams::Child { moved: true, .. })))
    }

    /// Whether a graph is another one, or inside a node there: such nodes belong to the same
    /// executable.
    pub(crate) fn is_within(&self, mut graph: ObjectId, outer: ObjectId) -> bool {
        while graph != outer {
            let Some(Role::Body(node) | Role::Child(node)) =
                self.graphs.get(&graph).map(|graph| graph.role)
            else {
                return false;
            };
            let Some(node) = self.nodes.get(&node) else { return false };
            graph = node.graph;
        }
        true
    }

    /// These nodes and all that come before them.
    pub(crate) fn before(&self, nodes: &[u64]) -> std::collections::HashSet<u64> {
        let mut found: std::collections::HashSet<u64> = nodes.iter().copied().collect();
        let mut open: Vec<u64> = nodes.to_vec();
        while let Some(node) = open.pop() {
            for edge in self.nodes.get(&node).map_or(&[][..], |node| &node.dependencies) {
                if found.insert(edge.node) {
                    open.push(edge.node);
                }
            }
        }
        found
    }

    /// Gives a node other parameters of the same kind.
    pub(crate) fn set(&mut self, handle: u64, params: NodeParams, given: Given) -> Result<()> {
        let node = self.node_mut(handle)?;
        require(std::mem::discriminant(&node.params) == std::mem::discriminant(&params))?;
        node.params = params;
        node.given = given;
        self.changed(handle)
    }

    /// Remembers that the device must be told of a node's parameters, and of those of the nodes
    /// around it.
    pub(crate) fn changed(&mut self, handle: u64) -> Result<()> {
        let (graph, sent) = {
            let node = self.node(handle)?;
            (node.graph, node.sent)
        };
        if sent {
            self.graph_mut(graph)?.mirror.changed(handle);
        }
        Ok(())
    }
}
