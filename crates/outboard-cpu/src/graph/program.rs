//! A graph made ready to run: its nodes one after another, each behind what it waits for.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outboard_abi::{
    CUgraphConditionalNodeType_enum as Kind, CUgraphExecUpdateResult_enum as UpdateResult, CUresult,
};
use outboard_front::backend::{Fill, HostCall, ObjectId, Result};
use outboard_wire::graph::{CopyNode, Edge, NodeParams};
use parking_lot::Mutex;

use super::model::Node;
use crate::boxes::BoxWork;
use crate::launch::Grid;
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
