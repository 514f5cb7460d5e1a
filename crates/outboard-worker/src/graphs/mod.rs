//! The client's graphs in the driver: the worker builds each from the client's edits, and the
//! driver replays it.

mod exec;
mod host;
mod inner;
mod left;
mod node;
mod params;
mod parts;
mod worker;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use outboard_abi::{CUgraph, CUgraphEdgeData, CUgraphExec, CUgraphNode, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::graph::{Edge, NodeParams};
use outboard_wire::{DevicePtr, ObjectId};

use super::answer::Outcome;
use super::bounds::{Kind, Nodes};
use super::objects::Handle;
pub(crate) use host::HostPart;
pub(crate) use left::Left;

/// Graphs and executables by the client's names.
#[derive(Default)]
pub(crate) struct Graphs {
    all: HashMap<ObjectId, Graph>,
    execs: HashMap<ObjectId, Exec>,
    /// Memory that graphs allocate, and who does: graphs and executables by name. While there is
    /// one, its addresses stay the session's, whatever launches have allocated or freed.
    memory: HashMap<DevicePtr, HashSet<ObjectId>>,
    /// There has been such memory: the device may keep some of it.
    has_allocated: bool,
}

/// A graph.
pub(crate) struct Graph {
    pub(super) native: Handle<outboard_abi::CUgraph_st>,
    /// It is inside a conditional node, or moved into a child-graph node, and goes with that.
    inner: bool,
    nodes: HashMap<u64, Node>,
    /// The first change that failed, and the node: nothing can be made of the graph any more.
    pub(super) error: Option<(CUresult, u64)>,
}

/// A node: one of the driver's, or a few in a row when the client's memory is involved.
pub(super) struct Node {
    first: Handle<outboard_abi::CUgraphNode_st>,
    /// Between the two, or one of them.
    main: Handle<outboard_abi::CUgraphNode_st>,
    last: Handle<outboard_abi::CUgraphNode_st>,
    params: NodeParams,
    dependencies: Vec<Edge>,
    /// What the driver calls for it.
    host: Vec<Arc<HostPart>>,
    _counted: Nodes,
}

/// An executable.
pub(crate) struct Exec {
    pub(super) native: Handle<outboard_abi::CUgraphExec_st>,
    /// What it was made of.
    pub(super) graph: ObjectId,
    /// What the driver calls for its nodes.
    pub(super) host: Vec<Arc<HostPart>>,
    /// What it called before nodes were changed: launches may be under way.
    pub(super) left: Left,
    /// Of what it calls, functions that nodes were given later, by the node's name.
    pub(super) calls: HashMap<u64, Arc<HostPart>>,
    /// Of that, what brings the client's bytes for a node, by the node's name ...
    pub(super) exchanges: HashMap<u64, Arc<HostPart>>,
    /// ... and the nodes that do nothing at present, though they could.
    pub(super) off: HashSet<u64>,
    /// Bytes that a launch allocates on each device, if it does.
    pub(super) memory: Vec<(u32, u64)>,
    /// Whether a launch records events.
    records: bool,
    pub(super) _nodes: Nodes,
}

impl Exec {
    /// From now on it calls these and no others; gives those that it called before.
    pub(super) fn calls_only(&mut self, host: Vec<Arc<HostPart>>) -> Vec<Arc<HostPart>> {
        let new: HashSet<*const HostPart> = host.iter().map(Arc::as_ptr).collect();
        let mut before = std::mem::replace(&mut self.host, host);
        before.retain(|part| !new.contains(&Arc::as_ptr(part)));
        self.calls.clear();
        before
    }

    /// It calls this, too.
    fn calls_also(&mut self, part: &Arc<HostPart>) {
        if !self.host.iter().any(|known| Arc::ptr_eq(known, part)) {
            self.host.push(Arc::clone(part));
        }
    }

    /// It calls this no longer; gives it for being left behind.
    fn calls_no_more(&mut self, part: Arc<HostPart>) -> Arc<HostPart> {
        self.host.retain(|known| !Arc::ptr_eq(known, &part));
        part
    }
}

impl Graphs {
    /// Whether a graph may have this name.
    pub(crate) fn check_new(&self, name: ObjectId) -> Outcome {
        if name == ObjectId::NONE || self.all.contains_key(&name) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        self.check_room(0)
    }

    /// Whether there may be one more graph, and so many besides.
    fn check_room(&self, besides: usize) -> Outcome {
        Kind::Graph.room(self.all.len().saturating_add(besides))
    }

    pub(crate) fn add(&mut self, name: ObjectId, native: CUgraph) {
        self.all.insert(name, Graph::new(native, false));
    }

    /// Whether an executable may have this name.
    pub(crate) fn check_new_exec(&self, name: ObjectId) -> Outcome {
        if name == ObjectId::NONE || self.execs.contains_key(&name) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        Kind::Executable.room(self.execs.len())
    }

    /// Adds an executable that was made of a graph.
    pub(crate) fn add_exec(
        &mut self,
        name: ObjectId,
        graph: ObjectId,
        native: CUgraphExec,
        nodes: Nodes,
    ) -> Outcome {
        let inside = self.with_inside(graph)?;
        // It allocates what its graphs do.
        for owners in self.memory.values_mut() {
            if inside.iter().any(|graph| owners.contains(graph)) {
                owners.insert(name);
            }
        }
        let exec = Exec {
            native: Handle::new(native),
            graph,
            host: self.all_host_parts(graph),
            left: Left::default(),
            calls: HashMap::new(),
            exchanges: self.exchanges(graph),
            off: HashSet::new(),
            memory: self.allocated_by(&inside),
            records: inside.iter().any(|graph| self.records(*graph)),
            _nodes: nodes,
        };
        self.execs.insert(name, exec);
        Ok(())
    }

    /// An executable has been updated to a graph; what it called before and does not any more.
    pub(crate) fn update_exec(&mut self, name: ObjectId, graph: ObjectId) -> Vec<Arc<HostPart>> {
        let (host, exchanges) = (self.all_host_parts(graph), self.exchanges(graph));
        let Some(exec) = self.execs.get_mut(&name) else { return Vec::new() };
        // Which node of another graph has become which of this one's, only the driver knows.
        exec.exchanges = if exec.graph == graph { exchanges } else { HashMap::new() };
        exec.calls_only(host)
    }

    /// Bytes that a launch of an executable allocates on each device.
    pub(crate) fn memory_of(&self, exec: ObjectId) -> Vec<(u32, u64)> {
        self.execs.get(&exec).map_or(Vec::new(), |exec| exec.memory.clone())
    }

    /// Whether a graph has a node that records an event.
    fn records(&self, graph: ObjectId) -> bool {
        let is_record = |node: &Node| matches!(node.params, NodeParams::EventRecord { .. });
        self.all.get(&graph).is_some_and(|graph| graph.nodes.values().any(is_record))
    }

    /// Whether a launch of an executable records events.
    pub(crate) fn records_events(&self, exec: ObjectId) -> bool {
        self.execs.get(&exec).is_some_and(|exec| exec.records)
    }

    /// Forgets an executable, which is to be destroyed then, and what the driver may call for it
    /// until its launches are done.
    pub(crate) fn remove_exec(
        &mut self,
        name: ObjectId,
    ) -> Result<(CUgraphExec, Vec<Arc<HostPart>>), CUresult> {
        let exec = self.execs.remove(&name).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        self.disown(name);
        let mut parts = exec.left.into_parts();
        parts.extend(exec.host);
        Ok((exec.native.get(), parts))
    }

    /// A graph allocates memory at this address.
    fn allocates(&mut self, graph: ObjectId, address: DevicePtr) {
        self.memory.entry(address).or_default().insert(graph);
        self.has_allocated = true;
    }

    /// Whether a graph or an executable allocates memory at this address.
    fn allocate_at(&self, address: DevicePtr) -> bool {
        self.memory.contains_key(&address)
    }

    /// Whether any graph has allocated memory: the device may keep some of it.
    #[inline]
    pub(crate) fn has_allocated(&self) -> bool {
        self.has_allocated
    }

    /// A graph or an executable is gone.
    fn disown(&mut self, name: ObjectId) {
        self.memory.retain(|_, owners| {
            owners.remove(&name);
            !owners.is_empty()
        });
    }

    pub(super) fn graph(&self, name: ObjectId) -> Result<&Graph, CUresult> {
        self.all.get(&name).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    pub(super) fn exec(&self, name: ObjectId) -> Result<CUgraphExec, CUresult> {
        self.execs
            .get(&name)
            .map(|exec| exec.native.get())
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    fn with_node(&mut self, graph: ObjectId, node: u64, change: impl FnOnce(&mut Node)) -> Outcome {
        let graph = self.all.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        graph.nodes.get_mut(&node).map(change).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Adds or removes an edge in the driver's graph.
    fn edge(&self, table: &Table, graph: ObjectId, from: Edge, to: u64, add: bool) -> Outcome {
        let graph = self.graph(graph)?;
        let (first, second) = (graph.node(from.node)?.last.get(), graph.node(to)?.first.get());
        let native = graph.native.get();
        if from.ports == [0; 3] {
            return match add {
                true => call!(
                    table,
                    cuGraphAddDependencies(native, &raw const first, &raw const second, 1)
                ),
                false => call!(
                    table,
                    cuGraphRemoveDependencies(native, &raw const first, &raw const second, 1)
                ),
            };
        }
        let data = edge_data(from.ports);
        let data = &raw const data;
        match add {
            true => call!(
                table,
                cuGraphAddDependencies_v2(native, &raw const first, &raw const second, data, 1)
            ),
            false => {
                call!(
                    table,
                    cuGraphRemoveDependencies_v2(
                        native,
                        &raw const first,
                        &raw const second,
                        data,
                        1
                    )
                )
            }
        }
    }

    /// Takes a node out of its graph, and gives its edges to others.
    fn remove_node(
        &mut self,
        table: &Table,
        graph: ObjectId,
        name: u64,
    ) -> Result<Vec<(u64, Edge)>, CUresult> {
        let found = self.all.get_mut(&graph).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let node = found.nodes.remove(&name).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mut dependents = Vec::new();
        for (other, second) in &mut found.nodes {
            dependents.extend(
                second
                    .dependencies
                    .extract_if(.., |edge| edge.node == name)
                    .map(|edge| (*other, edge)),
            );
        }
        self.forget_inside(&node.params);
        let mut natives = vec![node.first.get(), node.main.get(), node.last.get()];
        natives.dedup();
        for native in natives {
            call!(table, cuGraphDestroyNode(native))?;
        }
        Ok(dependents)
    }

    /// Nodes of a graph and of those inside it.
    pub(super) fn count_nodes(&self, graph: ObjectId) -> Result<usize, CUresult> {
        let inside = self.with_inside(graph)?;
        Ok(inside
            .into_iter()
            .filter_map(|graph| self.all.get(&graph))
            .map(|graph| graph.nodes.len())
            .sum())
    }

    /// What the driver calls for the nodes of a graph and of those inside it.
    pub(super) fn all_host_parts(&self, graph: ObjectId) -> Vec<Arc<HostPart>> {
        let inside = self.with_inside(graph).unwrap_or_default();
        inside.into_iter().filter_map(|graph| self.all.get(&graph)).flat_map(Graph::host).collect()
    }

    /// Of these, what brings the client's bytes, by the node's name.
    pub(super) fn exchanges(&self, graph: ObjectId) -> HashMap<u64, Arc<HostPart>> {
        let inside = self.with_inside(graph).unwrap_or_default();
        let nodes = inside
            .into_iter()
            .filter_map(|graph| self.all.get(&graph))
            .flat_map(|graph| &graph.nodes);
        let parts = |(name, node): (&u64, &Node)| {
            let part = node.host.iter().find(|part| part.has_memory())?;
            matches!(node.params, NodeParams::Copy(_)).then(|| (*name, Arc::clone(part)))
        };
        nodes.filter_map(parts).collect()
    }

    /// Forgets a graph.
    pub(super) fn drop_graph(&mut self, table: &Table, name: ObjectId) -> Outcome {
        // A body may have gone with its node.
        let Some(graph) = self.all.remove(&name) else { return Ok(()) };
        // It stays among the session's allocations: what a launch has allocated is the client's to
        // free.
        self.disown(name);
        graph.nodes.values().for_each(|node| self.forget_inside(&node.params));
        if graph.inner { Ok(()) } else { call!(table, cuGraphDestroy(graph.native.get())) }
    }
}

impl Graph {
    pub(super) fn new(native: CUgraph, inner: bool) -> Graph {
        Graph { native: Handle::new(native), inner, nodes: HashMap::new(), error: None }
    }

    fn node(&self, name: u64) -> Result<&Node, CUresult> {
        self.nodes.get(&name).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The client's name for a node of the driver's; 0 for none of these.
    pub(super) fn name_of(&self, native: CUgraphNode) -> u64 {
        let is_it = |node: &Node| {
            [node.first, node.main, node.last].iter().any(|known| known.get() == native)
        };
        self.nodes.iter().find(|(_, node)| is_it(node)).map_or(0, |(name, _)| *name)
    }

    /// What the driver calls for the nodes.
    pub(super) fn host(&self) -> Vec<Arc<HostPart>> {
        self.nodes.values().flat_map(|node| node.host.iter().cloned()).collect()
    }
}

pub(super) fn edge_data([from_port, to_port, kind]: [u8; 3]) -> CUgraphEdgeData {
    CUgraphEdgeData { from_port, to_port, type_: kind, reserved: [0; 5] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{calls, table};

    const GRAPH: ObjectId = ObjectId(1);
    const EXEC: ObjectId = ObjectId(2);
    const AT: DevicePtr = DevicePtr(0x1000);

    /// A graph, whose handle is 0x10 and which allocates memory, and an executable made of it.
    fn graphs() -> Graphs {
        let mut graphs = Graphs::default();
        graphs.check_new(GRAPH).unwrap();
        graphs.add(GRAPH, 0x10 as CUgraph);
        graphs.allocates(GRAPH, AT);
        graphs.check_new_exec(EXEC).unwrap();
        graphs.add_exec(EXEC, GRAPH, 0x20 as CUgraphExec, Nodes::take(0).unwrap()).unwrap();
        graphs
    }

    #[test]
    fn memory_is_a_graphs_while_the_graph_or_an_executable_is_there() {
        for exec_first in [false, true] {
            let (table, mut graphs) = (table(), graphs());
            let end = |graphs: &mut Graphs, exec: bool| {
                if exec {
                    graphs.remove_exec(EXEC).map(drop)
                } else {
                    graphs.drop_graph(table, GRAPH)
                }
            };
            assert!(graphs.allocate_at(AT) && !graphs.allocate_at(AT.offset(1)));
            end(&mut graphs, exec_first).unwrap();
            assert!(graphs.allocate_at(AT), "the other one allocates it still");
            end(&mut graphs, !exec_first).unwrap();
            assert!(!graphs.allocate_at(AT));
            assert!(graphs.has_allocated(), "the device may keep it");
            assert_eq!(calls(), ["cuGraphDestroy(0x10)"]);
        }
    }

    #[test]
    fn names_are_free_again_when_what_they_meant_has_ended() {
        let (table, mut graphs) = (table(), graphs());
        assert!(graphs.check_new(GRAPH).is_err() && graphs.check_new_exec(EXEC).is_err());
        assert_eq!(graphs.exec(EXEC), Ok(0x20 as CUgraphExec));
        graphs.drop_graph(table, GRAPH).unwrap();
        assert!(graphs.graph(GRAPH).is_err() && graphs.exec(EXEC).is_ok());
        let (exec, parts) = graphs.remove_exec(EXEC).unwrap();
        assert_eq!((exec, parts.len()), (0x20 as CUgraphExec, 0));
        assert!(graphs.remove_exec(EXEC).is_err() && graphs.exec(EXEC).is_err());
        assert_eq!((graphs.check_new(GRAPH), graphs.check_new_exec(EXEC)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_graph_that_is_inside_itself_is_found_once() {
        let mut graphs = graphs();
        let null = || Handle::new(core::ptr::null_mut());
        let node = |graph| Node {
            first: null(),
            main: null(),
            last: null(),
            params: NodeParams::Child { graph, moved: true },
            dependencies: Vec::new(),
            host: Vec::new(),
            _counted: Nodes::take(1).unwrap(),
        };
        let other = ObjectId(3);
        graphs.add(other, 0x30 as CUgraph);
        for (of, inside) in [(GRAPH, other), (other, GRAPH)] {
            graphs.all.get_mut(&of).unwrap().nodes.insert(1, node(inside));
        }
        assert_eq!(graphs.with_inside(GRAPH), Ok(vec![GRAPH, other]));
        assert_eq!(graphs.count_nodes(GRAPH), Ok(2));
        assert!(graphs.with_inside(ObjectId(9)).is_err());
    }
}
