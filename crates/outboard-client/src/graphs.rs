//! What graphs on the server need of this process while they run: functions of the program, and
//! bytes of its memory.
//!
//! The worker knows functions and memory by numbers only: it can request only what the program put
//! into graphs, and only during a launch. Graphs, executables and running launches hold the numbers
//! that they use; a number that none of them holds is forgotten.

mod given;
mod host_box;
mod launches;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outboard_abi::{CUgraphConditionalNodeType, CUresult};
use outboard_front::backend::{ContextId, HostPtr, ObjectId, Result, StreamId};
use outboard_wire::Reader;
use outboard_wire::graph::{CopyNode, HostNode, NodeParams, Place, Rows};
use outboard_wire::request::{GRAPH_CALL, GRAPH_PIECE, GRAPH_READ, GRAPH_WRITE};
use parking_lot::{Mutex, MutexGuard};

use crate::outstanding::Outstanding;
use crate::requests::Answerer;

use given::{Given, Numbers, Thing};
use host_box::HostBox;
pub(crate) use launches::Launch;
use launches::{ANY, Launches, Needs};

/// Something, and how often it is needed.
type Need = (Arc<Given>, u64);

/// What each node of a graph needs, those of graphs inside it included: by graph and name, each
/// thing and how often.
type Held = HashMap<(ObjectId, u64), Vec<Need>>;

/// The functions and memory that an executable uses.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    held: Held,
    /// Whether it frees memory.
    frees: bool,
}

/// What a node of a graph needs.
#[derive(Debug, Default)]
struct Node {
    held: Vec<Need>,
    /// Graphs inside it, themselves and not as copies.
    inside: Vec<ObjectId>,
    /// They are run until a condition ends that.
    loops: bool,
    /// It frees memory, or they do.
    frees: bool,
}

/// A body that runs until a condition ends that.
const WHILE: CUgraphConditionalNodeType = CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE;

/// An executable that uses this process.
#[derive(Debug, Default)]
struct Exec {
    /// The graph by whose names its nodes go.
    graph: ObjectId,
    nodes: Held,
    /// What it may need besides: after an update of which it is not known how far it went.
    also: Vec<Need>,
    /// All of it.
    needs: Needs,
}

#[derive(Debug, Default)]
struct GraphHostsState {
    /// The nodes, by graph and name, that use this process or have graphs inside.
    graphs: HashMap<ObjectId, HashMap<u64, Node>>,
    /// The executables that use this process.
    execs: HashMap<ObjectId, Exec>,
    /// Those that free memory.
    freeing: HashSet<ObjectId>,
}

/// All that graphs may ask for.
#[derive(Debug, Default)]
pub(crate) struct GraphHosts {
    numbers: Numbers,
    state: Mutex<GraphHostsState>,
    /// Whether any executable has ever freed memory.
    any_frees: AtomicBool,
    launches: Launches,
}

impl GraphHosts {
    /// The graphs of a session in which so much is outstanding.
    pub(crate) fn new(outstanding: Arc<Outstanding>) -> GraphHosts {
        GraphHosts {
            numbers: Numbers::default(),
            state: Mutex::default(),
            any_frees: AtomicBool::new(false),
            launches: Launches::new(outstanding),
        }
    }

    fn state(&self) -> MutexGuard<'_, GraphHostsState> {
        self.state.lock()
    }

    /// A node of a graph has these parameters from now on: gives them with numbers in place of the
    /// program's functions and addresses. `expect` has the worker's requests be heard.
    pub(crate) fn set_node(
        &self,
        graph: ObjectId,
        node: u64,
        params: NodeParams,
        expect: impl FnOnce() -> Result<()>,
    ) -> Result<NodeParams> {
        let (params, held) = self.translate(params, expect)?;
        let mut state = self.state();
        let new = match &params {
            NodeParams::Child { graph: inner, moved: true } => {
                Node { held, inside: vec![*inner], ..Node::default() }
            }
            NodeParams::Child { graph: inner, moved: false } => Node {
                held: state.held(*inner).into_values().flatten().collect(),
                frees: state.frees(*inner),
                ..Node::default()
            },
            NodeParams::Conditional(node) => {
                let (inside, loops) = (node.bodies.clone(), node.kind == WHILE.0);
                Node { held, inside, loops, ..Node::default() }
            }
            NodeParams::Free { .. } => Node { frees: true, ..Node::default() },
            _ => Node { held, ..Node::default() },
        };
        if !new.held.is_empty() || !new.inside.is_empty() || new.frees {
            state.graphs.entry(graph).or_default().insert(node, new);
        } else if let Some(nodes) = state.graphs.get_mut(&graph) {
            nodes.remove(&node);
        }
        Ok(params)
    }

    /// A node has left its graph.
    pub(crate) fn remove_node(&self, graph: ObjectId, node: u64) {
        if let Some(nodes) = self.state().graphs.get_mut(&graph) {
            nodes.remove(&node);
        }
    }

    /// A node of an executable has these parameters from now on; as [`GraphHosts::set_node`].
    /// Launches before that have what it had.
    pub(crate) fn set_exec_node(
        &self,
        exec: ObjectId,
        node: u64,
        params: NodeParams,
        expect: impl FnOnce() -> Result<()>,
    ) -> Result<NodeParams> {
        let (params, mut held) = self.translate(params, expect)?;
        let mut state = self.state();
        if let NodeParams::Child { graph, .. } = &params {
            held.extend(state.held(*graph).into_values().flatten());
        }
        let gone = state.set(exec, node, held);
        drop(state);
        drop(gone);
        Ok(params)
    }

    /// What a graph uses, for an executable that is about to be made or updated from it.
    pub(crate) fn of_graph(&self, graph: ObjectId) -> Uses {
        let state = self.state();
        Uses { held: state.held(graph), frees: state.frees(graph) }
    }

    /// An executable was made, or updated, from a graph, and uses this and nothing else.
    pub(crate) fn made(&self, exec: ObjectId, graph: ObjectId, uses: Uses) {
        let mut state = self.state();
        state.freeing.remove(&exec);
        self.note_frees(&mut state, exec, &uses);
        let gone = if uses.held.is_empty() {
            state.execs.remove(&exec)
        } else {
            let mut new = Exec { graph, nodes: uses.held, ..Exec::default() };
            new.count();
            state.execs.insert(exec, new)
        };
        drop(state);
        drop(gone);
    }

    /// An executable was updated in part, perhaps: it may use this as well.
    pub(crate) fn perhaps_made(&self, exec: ObjectId, uses: Uses) {
        let mut state = self.state();
        self.note_frees(&mut state, exec, &uses);
        if !uses.held.is_empty() {
            let known = state.execs.entry(exec).or_default();
            known.also.extend(uses.held.into_values().flatten());
            known.count();
        }
    }

    fn note_frees(&self, state: &mut GraphHostsState, exec: ObjectId, uses: &Uses) {
        if uses.frees {
            state.freeing.insert(exec);
            self.any_frees.store(true, Ordering::Release);
        }
    }

    /// Whether launches of an executable free memory.
    #[inline]
    pub(crate) fn frees_memory(&self, exec: ObjectId) -> bool {
        self.any_frees.load(Ordering::Acquire) && self.state().freeing.contains(&exec)
    }

    /// An executable is about to be launched in a stream: what it needs may be asked for until the
    /// result is dropped, or the program can know that the launch is over. `None` if it needs
    /// nothing.
    pub(crate) fn launch(
        &self,
        exec: ObjectId,
        ctx: ContextId,
        stream: StreamId,
    ) -> Option<Launch> {
        let state = self.state();
        let exec = state.execs.get(&exec)?;
        Some(self.launches.begin(ctx, stream, &exec.needs))
    }

    /// The program gives memory up: it is not read or written any more.
    pub(crate) fn gone(&self, range: &Range<HostPtr>) {
        self.launches.gone(range);
    }

    /// Forgets a graph.
    pub(crate) fn forget_graph(&self, graph: ObjectId) {
        let _gone = self.state().graphs.remove(&graph);
    }

    /// Forgets an executable.
    pub(crate) fn forget_exec(&self, exec: ObjectId) {
        let mut state = self.state();
        state.freeing.remove(&exec);
        let gone = state.execs.remove(&exec);
        drop(state);
        drop(gone);
    }

    /// Puts numbers in place of the program's functions and addresses, and gives what they stand
    /// for.
    fn translate(
        &self,
        params: NodeParams,
        expect: impl FnOnce() -> Result<()>,
    ) -> Result<(NodeParams, Vec<Need>)> {
        let is_host = |place: &Place| matches!(place, Place::Host(_));
        match params {
            NodeParams::Host(HostNode { function, data }) => {
                expect()?;
                let call = self.numbers.call(function, data)?;
                Ok((NodeParams::Host(HostNode { function: call.number, data: 0 }), vec![(call, 1)]))
            }
            NodeParams::Copy(copy) if is_host(&copy.dst) || is_host(&copy.src) => {
                expect()?;
                let CopyNode { ctx, dst, src, extent } = copy;
                let mut held = Vec::new();
                let (dst, src) = (
                    self.place(dst, extent, Numbers::destination, &mut held),
                    self.place(src, extent, Numbers::source, &mut held),
                );
                Ok((NodeParams::Copy(CopyNode { ctx, dst, src, extent }), held))
            }
            params => Ok((params, Vec::new())),
        }
    }

    fn place(
        &self,
        place: Place,
        extent: [u64; 3],
        number: fn(&Numbers, HostBox) -> Arc<Given>,
        held: &mut Vec<Need>,
    ) -> Place {
        let Place::Host(Rows { address, pitch, height }) = place else { return place };
        let given = number(&self.numbers, HostBox { address, pitch, height, extent });
        let number = HostPtr(given.number);
        held.push((given, 1));
        Place::Host(Rows { address: number, pitch: 0, height: 0 })
    }
}

impl Exec {
    /// Adds up what it needs.
    fn count(&mut self) {
        self.needs = Needs::new();
        for (given, times) in self.nodes.values().flatten().chain(&self.also) {
            let need = self.needs.entry(given.number).or_insert_with(|| (Arc::clone(given), 0));
            need.1 = need.1.saturating_add(*times);
        }
    }
}

impl GraphHostsState {
    /// Whether a graph or one inside it frees memory.
    fn frees(&self, graph: ObjectId) -> bool {
        let mut nodes = self.graphs.get(&graph).into_iter().flat_map(HashMap::values);
        nodes.any(|node| node.frees || node.inside.iter().any(|inner| self.frees(*inner)))
    }

    /// What a graph and those inside it use.
    fn held(&self, graph: ObjectId) -> Held {
        let (mut held, mut open) = (Held::new(), vec![(graph, false)]);
        while let Some((graph, looped)) = open.pop() {
            for (name, node) in self.graphs.get(&graph).into_iter().flatten() {
                let times = |times: u64| if looped { ANY } else { times };
                let needs =
                    node.held.iter().map(|(given, count)| (Arc::clone(given), times(*count)));
                held.entry((graph, *name)).or_insert_with(Vec::new).extend(needs);
                open.extend(node.inside.iter().map(|inner| (*inner, looped || node.loops)));
            }
        }
        held.retain(|_, needs| !needs.is_empty());
        held
    }

    /// A node of an executable needs this, and what it needed before no more. Gives that back.
    fn set(&mut self, exec: ObjectId, node: u64, held: Vec<Need>) -> Vec<Need> {
        if held.is_empty() && !self.execs.contains_key(&exec) {
            return held;
        }
        let known = self.execs.entry(exec).or_default();
        let before = known.nodes.remove(&(known.graph, node)).unwrap_or_default();
        if !held.is_empty() {
            known.nodes.insert((known.graph, node), held);
        }
        known.count();
        if known.needs.is_empty() {
            self.execs.remove(&exec);
        }
        before
    }
}

impl Answerer for GraphHosts {
    fn expects(&self, kind: u32, _ctx: ContextId) -> bool {
        matches!(kind, GRAPH_CALL | GRAPH_READ | GRAPH_WRITE) && self.launches.are_any()
    }

    fn answer(&self, kind: u32, _ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        let broken = Some(Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        let launches = &self.launches;
        let outcome = match kind {
            GRAPH_CALL => {
                let Ok(number) = body.get::<u64>() else { return broken };
                launches.with(
                    number,
                    |thing| matches!(thing, Thing::Call(_)),
                    1,
                    |thing| {
                        let Thing::Call(call) = thing else { return None };
                        call.lock().call(CUresult::CUDA_SUCCESS);
                        Some(Vec::new())
                    },
                )
            }
            GRAPH_READ => {
                let (Ok(number), Ok(at), Ok(len)) =
                    (body.get::<u64>(), body.get::<u64>(), body.get::<u32>())
                else {
                    return broken;
                };
                if len as usize > GRAPH_PIECE {
                    return broken;
                }
                launches.with(
                    number,
                    |thing| matches!(thing, Thing::Source(_)),
                    len.into(),
                    |thing| {
                        let Thing::Source(memory) = thing else { return None };
                        memory.read(at, len as usize)
                    },
                )
            }
            GRAPH_WRITE => {
                let (Ok(number), Ok(at)) = (body.get::<u64>(), body.get::<u64>()) else {
                    return broken;
                };
                let bytes = body.take_rest();
                launches.with(
                    number,
                    |thing| matches!(thing, Thing::Destination(_)),
                    bytes.len() as u64,
                    |thing| {
                        let Thing::Destination(memory) = thing else { return None };
                        memory.write(at, bytes).map(|()| Vec::new())
                    },
                )
            }
            _ => return None,
        };
        Some(outcome.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE))
    }
}

#[cfg(test)]
mod tests;
