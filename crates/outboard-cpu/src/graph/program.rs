//! A graph made ready to run: its nodes one after another, each behind what it waits for.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outboard_abi::{
    CUgraphConditionalNodeType_enum as Kind, CUgraphExecUpdateResult_enum as UpdateResult,
    CUhostFn, CUresult, CUstreamBatchMemOpType_enum as Operation,
};
use outboard_front::backend::{
    BoxCopy, Extent, Fill, HostCall, Launch, Layout, Memory, ObjectId, Result, Side,
};
use outboard_wire::graph::{CopyNode, Edge, NodeParams, Place};
use parking_lot::Mutex;

use super::model::Node;
use crate::boxes::BoxWork;
use crate::cpu::Cpu;
use crate::launch::Grid;
use crate::memory::{check_range, extent};
use crate::work::{Condition, Word};

/// What a step does.
#[derive(Clone)]
pub(super) enum Action {
    Nothing,
    Launch(Arc<Grid>),
    Copy(Arc<BoxWork>),
    Fill(Fill),
    /// Calls a function of the program.
    Host(Arc<Mutex<HostCall>>),
    Child(Arc<Program>),
    Record(ObjectId),
    Wait(ObjectId),
    Allocate,
    Free(u64),
    Batch(Arc<[MemoryStep]>),
    /// Runs bodies as the value says.
    Conditional(Start, Kind, Vec<Arc<Program>>),
}

/// The value of a conditional node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Its address.
    pub(super) handle: u64,
    /// What each launch begins with, if it does.
    pub(super) value: Option<u32>,
}

impl Start {
    fn word(self) -> &'static AtomicU32 {
        // SAFETY: an aligned word of device memory that is allocated until its context ends; the
        // arena stays mapped for ever, and whoever accesses the word does so as a whole.
        unsafe { AtomicU32::from_ptr(self.handle as *mut u32) }
    }

    pub(super) fn set(self, value: u32) {
        self.word().store(value, Ordering::SeqCst);
    }

    pub(super) fn get(self) -> u32 {
        self.word().load(Ordering::SeqCst)
    }
}

/// One operation of a batch.
#[derive(Clone, Copy)]
pub(super) enum MemoryStep {
    Wait(Word, Condition),
    Write(Word),
    Nothing,
}

/// A node's turn.
#[derive(Clone)]
pub(super) struct Step {
    node: u64,
    pub(super) params: NodeParams,
    pub(super) action: Action,
    pub(super) enabled: bool,
    /// The steps that come first, by their places.
    behind: Vec<(usize, [u8; 3])>,
    /// The address of a node that allocates.
    pub(super) address: u64,
}

/// Steps in order.
#[derive(Clone, Default)]
pub(crate) struct Program {
    pub(super) steps: Vec<Step>,
    places: HashMap<u64, usize>,
}

impl Program {
    pub(super) fn push(&mut self, node: u64, found: &Node, action: Action) {
        let place = |edge: &Edge| Some((*self.places.get(&edge.node)?, edge.ports));
        let mut behind: Vec<_> = found.dependencies.iter().filter_map(place).collect();
        behind.sort_unstable();
        self.places.insert(node, self.steps.len());
        let (params, address) = (found.params.clone(), found.address);
        self.steps.push(Step { node, params, action, enabled: true, behind, address });
    }

    /// Changes the step of a node.
    pub(super) fn change(&mut self, node: u64, change: impl FnOnce(&mut Step)) -> Result<()> {
        self.step(node).map(change).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The step of a node, here or in a graph inside.
    fn step(&mut self, node: u64) -> Option<&mut Step> {
        if let Some(place) = self.places.get(&node) {
            return self.steps.get_mut(*place);
        }
        self.steps
            .iter_mut()
            .flat_map(|step| step.action.inner_mut())
            // Copied only if it is the one, as launches under way may have it.
            .find(|inner| inner.has(node))
            .and_then(|inner| Arc::make_mut(inner).step(node))
    }

    /// Whether a node is here or in a graph inside.
    fn has(&self, node: u64) -> bool {
        let inside = |step: &Step| step.action.inner().iter().any(|inner| inner.has(node));
        self.places.contains_key(&node) || self.steps.iter().any(inside)
    }

    /// Whether another graph has the same shape. If not, why, and because of which of its nodes.
    pub(super) fn admits(&self, fresh: &Program) -> std::result::Result<(), (UpdateResult, u64)> {
        if self.steps.len() != fresh.steps.len() {
            return Err((UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 0));
        }
        for (old, new) in self.steps.iter().zip(&fresh.steps) {
            if std::mem::discriminant(&old.params) != std::mem::discriminant(&new.params) {
                return Err((UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, new.node));
            }
            if old.behind != new.behind {
                return Err((UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, new.node));
            }
            if let (Action::Child(old), Action::Child(new)) = (&old.action, &new.action) {
                old.admits(new)?;
            }
            if let (Action::Conditional(_, was, old), Action::Conditional(_, is, fresh)) =
                (&old.action, &new.action)
            {
                if was != is || old.len() != fresh.len() {
                    return Err((
                        UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                        new.node,
                    ));
                }
                old.iter().zip(fresh).try_for_each(|(old, fresh)| old.admits(fresh))?;
            }
            if let (NodeParams::Copy(old), NodeParams::Copy(copy)) = (&old.params, &new.params) {
                let sides = |copy: &CopyNode| {
                    (std::mem::discriminant(&copy.dst), std::mem::discriminant(&copy.src))
                };
                if sides(old) != sides(copy) {
                    return Err((
                        UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
                        new.node,
                    ));
                }
            }
        }
        Ok(())
    }

    /// The steps of another graph under the names of this one.
    pub(super) fn updated(&self, mut fresh: Program) -> Program {
        for (old, new) in self.steps.iter().zip(&mut fresh.steps) {
            new.node = old.node;
            for (old, new) in old.action.inner().iter().zip(new.action.inner_mut()) {
                *new = Arc::new(old.updated(Program::clone(new)));
            }
        }
        Program { steps: fresh.steps, places: self.places.clone() }
    }

    /// The blocks that it allocates.
    pub(super) fn blocks(&self) -> Vec<u64> {
        let mut blocks = Vec::new();
        for step in &self.steps {
            if let Action::Allocate = step.action {
                blocks.push(step.address);
            }
            step.action.inner().iter().for_each(|inner| blocks.extend(inner.blocks()));
        }
        blocks
    }

    /// Events that it waits for.
    pub(super) fn waits(&self) -> Vec<ObjectId> {
        self.events(|action| if let Action::Wait(event) = action { Some(*event) } else { None })
    }

    pub(super) fn events(&self, which: fn(&Action) -> Option<ObjectId>) -> Vec<ObjectId> {
        let mut events = Vec::new();
        for step in &self.steps {
            events.extend(which(&step.action));
            for inner in step.action.inner() {
                events.extend(inner.events(which));
            }
        }
        events
    }

    /// Gives the values of conditional nodes what a launch begins with.
    pub(super) fn begin(&self) {
        for step in &self.steps {
            if let Action::Conditional(start, _, _) = &step.action
                && let Some(value) = start.value
            {
                start.set(value);
            }
            step.action.inner().iter().for_each(|inner| inner.begin());
        }
    }
}

impl Cpu {
    /// What a node does when its turn comes.
    pub(super) fn action(&self, params: &NodeParams) -> Result<Action> {
        Ok(match params {
            NodeParams::Empty => Action::Nothing,
            NodeParams::Kernel(node) => {
                let function = self.function(node.function)?;
                let cooperative =
                    outboard_abi::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0;
                let launch = Launch {
                    function: node.function,
                    grid: node.grid,
                    block: node.block,
                    shared: node.shared,
                    params: &node.params,
                    cooperative: node
                        .attributes
                        .iter()
                        .any(|(id, value)| *id == cooperative && value[..4] != [0; 4]),
                    attributes: &node.attributes,
                };
                Action::Launch(Arc::new(self.grid(&function, node.ctx, &launch)?))
            }
            NodeParams::Copy(node) => {
                let [width, height, depth] = node.extent;
                let extent = Extent { width, height, depth };
                if extent.is_empty() || extent.bytes().is_none() {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                let copy = BoxCopy { dst: side(&node.dst), src: side(&node.src), extent };
                Action::Copy(Arc::new(self.box_work(&copy)?))
            }
            NodeParams::Fill(node) => {
                let row = node.width.checked_mul(u64::from(node.element));
                let row = row.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                let aligned = matches!(node.element, 1 | 2 | 4)
                    && node.dst.is_multiple_of(u64::from(node.element))
                    && (node.height == 1 || node.pitch.is_multiple_of(u64::from(node.element)));
                if !aligned {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                check_range(self.engines()?, node.dst.0, extent(row, node.height, node.pitch)?)?;
                Action::Fill(Fill {
                    dst: node.dst,
                    pitch: node.pitch,
                    value: node.value,
                    element: node.element,
                    width: node.width,
                    height: node.height,
                })
            }
            NodeParams::Host(node) => {
                // SAFETY: the number is a function pointer, or 0 for `None`: the front made it from
                // one.
                let function =
                    unsafe { core::mem::transmute::<usize, CUhostFn>(node.function as usize) };
                // SAFETY: the program gave both for this.
                let call = unsafe { HostCall::plain(function, node.data as *mut c_void) }?;
                Action::Host(Arc::new(Mutex::new(call)))
            }
            NodeParams::Child { graph, .. } => {
                Action::Child(Arc::new(self.compile(*graph).map_err(|(error, _)| error)?))
            }
            NodeParams::EventRecord { event } => {
                self.event(*event)?;
                Action::Record(*event)
            }
            NodeParams::EventWait { event } => {
                self.event(*event)?;
                Action::Wait(*event)
            }
            NodeParams::Allocate(_) => Action::Allocate,
            NodeParams::Free { address } => Action::Free(address.0),
            NodeParams::Batch(node) => {
                let steps = node.operations.iter().map(|operation| {
                    let word = |wide| self.word(operation.address.0, operation.value, wide);
                    let condition = || {
                        Condition::new(operation.flags).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
                    };
                    Ok(match Operation(operation.kind) {
                        Operation::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
                            MemoryStep::Wait(word(false)?, condition()?)
                        }
                        Operation::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                            MemoryStep::Wait(word(true)?, condition()?)
                        }
                        Operation::CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
                            MemoryStep::Write(word(false)?)
                        }
                        Operation::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                            MemoryStep::Write(word(true)?)
                        }
                        // All writes are seen in order here.
                        _ => MemoryStep::Nothing,
                    })
                });
                Action::Batch(steps.collect::<Result<Vec<_>>>()?.into())
            }
            NodeParams::Conditional(node) => {
                let start = self.graphs.starts.lock().get(&node.handle).copied();
                let body =
                    |body: &ObjectId| self.compile(*body).map(Arc::new).map_err(|(error, _)| error);
                let bodies = node.bodies.iter().map(body).collect::<Result<_>>()?;
                Action::Conditional(
                    start.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
                    Kind(node.kind),
                    bodies,
                )
            }
        })
    }
}

/// A side of a copy. Host addresses are of this process: the front that gave them is.
fn side(place: &Place) -> Side {
    let in_memory = |memory, pitch: u64, height| {
        let layout = Layout { pitch, slice: pitch.saturating_mul(height) };
        Side { memory, layout, at: (0, 0, 0) }
    };
    match place {
        Place::Device(rows) => in_memory(Memory::Device(rows.address), rows.pitch, rows.height),
        Place::Host(rows) => in_memory(Memory::Host(rows.address), rows.pitch, rows.height),
        Place::Array { array, at: [x, y, z], .. } => {
            Side { memory: Memory::Array(*array), layout: Layout::default(), at: (*x, *y, *z) }
        }
    }
}

impl Action {
    /// Programs inside it, to be changed.
    fn inner_mut(&mut self) -> &mut [Arc<Program>] {
        match self {
            Action::Child(inner) => std::slice::from_mut(inner),
            Action::Conditional(_, _, bodies) => bodies,
            _ => &mut [],
        }
    }

    /// Programs inside it.
    fn inner(&self) -> &[Arc<Program>] {
        match self {
            Action::Child(inner) => std::slice::from_ref(inner),
            Action::Conditional(_, _, bodies) => bodies,
            _ => &[],
        }
    }
}
