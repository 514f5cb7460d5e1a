//! What graphs on the server need of this process while they run: functions of the program, and bytes of its memory.
//!
//! The worker knows functions and memory by numbers only: it can have called and read what the program put into graphs, and nothing else. Graphs,
//! executables and launches under way hold the numbers that they use; those that nobody holds are gone.

mod given;
mod host_box;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, Result};
use outboard_wire::Reader;
use outboard_wire::graph::{CopyNode, HostNode, NodeParams, Place, Rows};
use outboard_wire::request::{GRAPH_CALL, GRAPH_PIECE, GRAPH_READ, GRAPH_WRITE};

use crate::requests::Answerer;

use given::{Given, Numbers, Thing};
use host_box::HostBox;

/// What something holds, by number.
type Held = HashMap<u64, Arc<Given>>;

/// What an executable may ask for: kept by the executable and by launches of it that are under way.
#[derive(Debug, Clone)]
pub(crate) struct Uses(Arc<Mutex<Held>>);

/// What a node of a graph needs.
#[derive(Debug, Default)]
struct Node {
    held: Vec<Arc<Given>>,
    /// Graphs inside it, themselves and not as copies.
    inside: Vec<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// The nodes, by graph and name, that use this process or have graphs inside.
    graphs: HashMap<u64, HashMap<u64, Node>>,
    /// The executables that use this process.
    execs: HashMap<u64, Uses>,
}

/// All that graphs may ask for.
#[derive(Debug, Default)]
pub(crate) struct GraphHosts {
    numbers: Numbers,
    state: Mutex<State>,
}

impl GraphHosts {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node of a graph has these parameters from now on: gives them with numbers in place of the program's functions and addresses.
    /// `expect` has the worker's requests be heard.
    pub(crate) fn set_node(
        &self,
        graph: u64,
        node: u64,
        params: NodeParams,
        expect: impl FnOnce() -> Result<()>,
    ) -> Result<NodeParams> {
        let (params, held) = self.translate(params, expect)?;
        let mut state = self.state();
        let new = match &params {
            NodeParams::Child { graph: inner, moved: true } => Node { held, inside: vec![*inner] },
            NodeParams::Child { graph: inner, moved: false } => {
                Node { held: state.held(*inner).into_values().collect(), inside: Vec::new() }
            }
            NodeParams::Conditional(node) => Node { held, inside: node.bodies.clone() },
            _ => Node { held, inside: Vec::new() },
        };
        if !new.held.is_empty() || !new.inside.is_empty() {
            state.graphs.entry(graph).or_default().insert(node, new);
        } else if let Some(nodes) = state.graphs.get_mut(&graph) {
            nodes.remove(&node);
        }
        Ok(params)
    }

    /// A node has left its graph.
    pub(crate) fn remove_node(&self, graph: u64, node: u64) {
        if let Some(nodes) = self.state().graphs.get_mut(&graph) {
            nodes.remove(&node);
        }
    }

    /// A node of an executable has these parameters from now on; as [`GraphHosts::set_node`]. What it had before, launches may still use.
    pub(crate) fn set_exec_node(
        &self,
        exec: u64,
        params: NodeParams,
        expect: impl FnOnce() -> Result<()>,
    ) -> Result<NodeParams> {
        let (params, held) = self.translate(params, expect)?;
        let mut state = self.state();
        let mut held: Held = held.into_iter().map(|given| (given.number, given)).collect();
        if let NodeParams::Child { graph, .. } = &params {
            held.extend(state.held(*graph));
        }
        state.add(exec, held);
        Ok(params)
    }

    /// What a graph uses, for an executable that is about to be made or updated from it.
    pub(crate) fn of_graph(&self, graph: u64) -> Uses {
        Uses(Arc::new(Mutex::new(self.state().held(graph))))
    }

    /// An executable was made, or updated, and uses this and nothing else.
    pub(crate) fn made(&self, exec: u64, uses: Uses) {
        let mut state = self.state();
        if uses.lock().is_empty() {
            state.execs.remove(&exec);
        } else {
            state.execs.insert(exec, uses);
        }
    }

    /// An executable was updated in part, perhaps: it may use this as well.
    pub(crate) fn perhaps_made(&self, exec: u64, uses: &Uses) {
        let more = uses.lock().clone();
        self.state().add(exec, more);
    }

    /// What a launch of an executable may ask for, to be kept while it is under way. `None` if that is nothing.
    pub(crate) fn of_exec(&self, exec: u64) -> Option<Uses> {
        self.state().execs.get(&exec).cloned()
    }

    /// Forgets a graph.
    pub(crate) fn forget_graph(&self, graph: u64) {
        self.state().graphs.remove(&graph);
    }

    /// Forgets an executable.
    pub(crate) fn forget_exec(&self, exec: u64) {
        self.state().execs.remove(&exec);
    }

    /// Puts numbers in place of the program's functions and addresses, and gives what they stand for.
    fn translate(
        &self,
        params: NodeParams,
        expect: impl FnOnce() -> Result<()>,
    ) -> Result<(NodeParams, Vec<Arc<Given>>)> {
        let is_host = |place: &Place| matches!(place, Place::Host(_));
        match params {
            NodeParams::Host(HostNode { function, data }) => {
                expect()?;
                let call = self.numbers.call(function, data)?;
                Ok((NodeParams::Host(HostNode { function: call.number, data: 0 }), vec![call]))
            }
            NodeParams::Copy(copy) if is_host(&copy.dst) || is_host(&copy.src) => {
                expect()?;
                let CopyNode { ctx, dst, src, extent } = copy;
                let mut held = Vec::new();
                let (dst, src) = (self.place(dst, extent, &mut held), self.place(src, extent, &mut held));
                Ok((NodeParams::Copy(CopyNode { ctx, dst, src, extent }), held))
            }
            params => Ok((params, Vec::new())),
        }
    }

    fn place(&self, place: Place, extent: [u64; 3], held: &mut Vec<Arc<Given>>) -> Place {
        let Place::Host(Rows { address, pitch, height }) = place else { return place };
        let given = self.numbers.memory(HostBox { address, pitch, height, extent });
        let address = given.number;
        held.push(given);
        Place::Host(Rows { address, pitch: 0, height: 0 })
    }
}

impl Uses {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What a graph and those inside it use.
    fn held(&self, graph: u64) -> Held {
        let (mut held, mut open) = (Held::new(), vec![graph]);
        while let Some(graph) = open.pop() {
            for node in self.graphs.get(&graph).into_iter().flat_map(HashMap::values) {
                held.extend(node.held.iter().map(|given| (given.number, Arc::clone(given))));
                open.extend(&node.inside);
            }
        }
        held
    }

    /// An executable uses these, too.
    fn add(&mut self, exec: u64, more: Held) {
        if !more.is_empty() {
            self.execs.entry(exec).or_insert_with(|| Uses(Arc::default())).lock().extend(more);
        }
    }
}

impl Answerer for GraphHosts {
    fn answer(&self, kind: u32, _ctx: ContextId, body: &mut Reader<'_>) -> Option<Result<Vec<u8>>> {
        let broken = Some(Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        let memory = |number| match self.numbers.find(number)?.thing {
            Thing::Memory(memory) => Some(memory),
            Thing::Call(_) => None,
        };
        let outcome = match kind {
            GRAPH_CALL => {
                let Ok(number) = body.get::<u64>() else { return broken };
                self.numbers.find(number).and_then(|given| {
                    let Thing::Call(call) = &given.thing else { return None };
                    call.lock().unwrap_or_else(PoisonError::into_inner).call(CUresult::CUDA_SUCCESS);
                    Some(Vec::new())
                })
            }
            GRAPH_READ => {
                let (Ok(number), Ok(at), Ok(len)) = (body.get::<u64>(), body.get::<u64>(), body.get::<u32>()) else {
                    return broken;
                };
                memory(number).filter(|_| len as usize <= GRAPH_PIECE).and_then(|found| found.read(at, len as usize))
            }
            GRAPH_WRITE => {
                let (Ok(number), Ok(at)) = (body.get::<u64>(), body.get::<u64>()) else { return broken };
                memory(number).and_then(|found| found.write(at, body.take_rest())).map(|()| Vec::new())
            }
            _ => return None,
        };
        Some(outcome.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE))
    }
}

#[cfg(test)]
mod tests;
