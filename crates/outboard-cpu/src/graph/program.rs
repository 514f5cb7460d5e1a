//! A graph made ready to run: its nodes one after another, each behind what it waits for.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outboard_abi::{
    CUgraphConditionalNodeType_enum as Kind, CUgraphExecUpdateResult_enum as UpdateResult, CUhostFn, CUresult,
    CUstreamBatchMemOpType_enum as Operation,
};
use outboard_front::backend::{Backend, ContextId, Fill, HostCall, Launch, ObjectId, Rect, Result};
use outboard_wire::graph::{CopyNode, Edge, NodeParams, Place, Rows};
use parking_lot::Mutex;

use super::model::Node;
use crate::backend::Cpu;
use crate::context::Context;
use crate::launch::Grid;
use crate::memory::{check_range, extent};
use crate::work::{Condition, Progress, Stamp, Word, Work};

/// What a step does.
#[derive(Clone)]
pub(super) enum Action {
    Nothing,
    Launch(Arc<Grid>),
    /// Slices of a copy: destination, source, rows.
    Copy(Arc<[(u64, u64, Rect)]>),
    Fill(Fill),
    /// Calls a function of the program.
    Host(Arc<Mutex<HostCall>>),
    Child(Arc<Program>),
    Record(u64),
    Wait(u64),
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
        // SAFETY: an aligned word of device memory that is allocated until its context ends; the arena stays mapped for ever, and whoever
        // accesses the word does so as a whole.
        unsafe { AtomicU32::from_ptr(self.handle as *mut u32) }
    }

    pub(super) fn set(self, value: u32) {
        self.word().store(value, Ordering::SeqCst);
    }

    fn get(self) -> u32 {
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
    address: u64,
}

/// Steps in order.
#[derive(Clone, Default)]
pub(crate) struct Program {
    steps: Vec<Step>,
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

    /// The step of a node, here or in a body.
    fn step(&mut self, node: u64) -> Option<&mut Step> {
        if let Some(place) = self.places.get(&node) {
            return self.steps.get_mut(*place);
        }
        self.steps.iter_mut().find_map(|step| match &mut step.action {
            Action::Conditional(_, _, bodies) => bodies.iter_mut().find_map(|body| Arc::make_mut(body).step(node)),
            _ => None,
        })
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
            if let (Action::Conditional(_, was, old), Action::Conditional(_, is, fresh)) = (&old.action, &new.action) {
                if was != is || old.len() != fresh.len() {
                    return Err((UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, new.node));
                }
                old.iter().zip(fresh).try_for_each(|(old, fresh)| old.admits(fresh))?;
            }
            if let (NodeParams::Copy(old), NodeParams::Copy(copy)) = (&old.params, &new.params) {
                let sides = |copy: &CopyNode| (std::mem::discriminant(&copy.dst), std::mem::discriminant(&copy.src));
                if sides(old) != sides(copy) {
                    return Err((UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, new.node));
                }
            }
        }
        Ok(())
    }

    /// The steps of another graph under the names of this one.
    pub(super) fn updated(&self, mut fresh: Program) -> Program {
        for (old, new) in self.steps.iter().zip(&mut fresh.steps) {
            new.node = old.node;
        }
        Program { steps: fresh.steps, places: self.places.clone() }
    }

    /// Events that it waits for.
    pub(super) fn waits(&self) -> Vec<u64> {
        self.events(|action| if let Action::Wait(event) = action { Some(*event) } else { None })
    }

    fn events(&self, which: fn(&Action) -> Option<u64>) -> Vec<u64> {
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
    fn begin(&self) {
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
                let function = self.function(ObjectId(node.function))?;
                let cooperative = outboard_abi::CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0;
                let launch = Launch {
                    function: ObjectId(node.function),
                    grid: node.grid,
                    block: node.block,
                    shared: node.shared,
                    params: &node.params,
                    cooperative: node.attributes.iter().any(|(id, value)| *id == cooperative && value[..4] != [0; 4]),
                    attributes: &node.attributes,
                };
                Action::Launch(Arc::new(self.grid(&function, ContextId(node.ctx), &launch)?))
            }
            NodeParams::Copy(node) => Action::Copy(self.slices(node)?.into()),
            NodeParams::Fill(node) => {
                let row = node.width.checked_mul(u64::from(node.element));
                let row = row.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                let aligned = matches!(node.element, 1 | 2 | 4)
                    && node.dst.is_multiple_of(u64::from(node.element))
                    && (node.height == 1 || node.pitch.is_multiple_of(u64::from(node.element)));
                if !aligned {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                check_range(self.engines()?, node.dst, extent(row, node.height, node.pitch)?)?;
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
                // SAFETY: the number is a function pointer, or 0 for `None`: the front made it from one.
                let function = unsafe { core::mem::transmute::<usize, CUhostFn>(node.function as usize) };
                // SAFETY: the program gave both for this.
                let call = unsafe { HostCall::plain(function, node.data as *mut c_void) }?;
                Action::Host(Arc::new(Mutex::new(call)))
            }
            NodeParams::Child { graph } => {
                Action::Child(Arc::new(self.compile(ObjectId(*graph)).map_err(|(error, _)| error)?))
            }
            NodeParams::EventRecord { event } => {
                self.event(ObjectId(*event))?;
                Action::Record(*event)
            }
            NodeParams::EventWait { event } => {
                self.event(ObjectId(*event))?;
                Action::Wait(*event)
            }
            NodeParams::Allocate(_) => Action::Allocate,
            NodeParams::Free { address } => Action::Free(*address),
            NodeParams::Batch(node) => {
                let steps = node.operations.iter().map(|operation| {
                    let word = |wide| self.word(operation.address, operation.value, wide);
                    let condition = || Condition::new(operation.flags).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE);
                    Ok(match Operation(operation.kind) {
                        Operation::CU_STREAM_MEM_OP_WAIT_VALUE_32 => MemoryStep::Wait(word(false)?, condition()?),
                        Operation::CU_STREAM_MEM_OP_WAIT_VALUE_64 => MemoryStep::Wait(word(true)?, condition()?),
                        Operation::CU_STREAM_MEM_OP_WRITE_VALUE_32 => MemoryStep::Write(word(false)?),
                        Operation::CU_STREAM_MEM_OP_WRITE_VALUE_64 => MemoryStep::Write(word(true)?),
                        // All writes are seen in order here.
                        _ => MemoryStep::Nothing,
                    })
                });
                Action::Batch(steps.collect::<Result<Vec<_>>>()?.into())
            }
            NodeParams::Conditional(node) => {
                let start = self.graphs.starts.lock().get(&node.handle).copied();
                let body = |body: &u64| self.compile(ObjectId(*body)).map(Arc::new).map_err(|(error, _)| error);
                let bodies = node.bodies.iter().map(body).collect::<Result<_>>()?;
                Action::Conditional(start.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, Kind(node.kind), bodies)
            }
        })
    }

    /// A copy's slices. Host addresses are of this process: the front that gave them is.
    fn slices(&self, node: &CopyNode) -> Result<Vec<(u64, u64, Rect)>> {
        let [width, height, depth] = node.extent;
        let side = |place: &Place| match place {
            Place::Device(rows) => {
                let all = rows.height.checked_mul(depth - 1).and_then(|above| above.checked_add(height));
                let all = all.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
                check_range(self.engines()?, rows.address, extent(width, all, rows.pitch)?)?;
                Ok(*rows)
            }
            Place::Host(rows) => Ok(*rows),
            Place::Array { .. } => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        };
        if width == 0 || height == 0 || depth == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (dst, src) = (side(&node.dst)?, side(&node.src)?);
        let slice = |rows: &Rows, z: u64| rows.address + z * rows.height * rows.pitch;
        let rect = Rect { width, height, dst_pitch: dst.pitch, src_pitch: src.pitch };
        Ok((0..depth).map(|z| (slice(&dst, z), slice(&src, z), rect)).collect())
    }
}

/// A program that a stream runs.
pub(crate) struct Replay {
    /// The graph and those inside it that are under way, each with the place of its next step and of the next operation of a batch.
    frames: Vec<(Arc<Program>, usize, usize)>,
    stamps: HashMap<u64, Arc<Stamp>>,
    begun: bool,
    /// Where it was launched.
    context: Arc<Context>,
    auto_free: bool,
}

impl Replay {
    /// A run of a program, and for each event that it records what takes the time.
    pub(super) fn new(
        program: Arc<Program>,
        context: Arc<Context>,
        auto_free: bool,
    ) -> (Replay, Vec<(u64, Arc<Stamp>)>) {
        let records = program.events(|action| if let Action::Record(event) = action { Some(*event) } else { None });
        let stamps: HashMap<u64, Arc<Stamp>> =
            records.into_iter().map(|event| (event, Arc::new(Stamp::default()))).collect();
        let list = stamps.iter().map(|(event, stamp)| (*event, stamp.clone())).collect();
        (Replay { frames: vec![(program, 0, 0)], stamps, begun: false, context, auto_free }, list)
    }

    /// Whether it has no value in memory to wait for.
    pub(crate) fn is_ready(&self) -> bool {
        let Some((program, place, operation)) = self.frames.last() else { return true };
        match program.steps.get(*place).map(|step| &step.action) {
            Some(Action::Batch(steps)) => match steps.get(*operation) {
                Some(MemoryStep::Wait(word, condition)) => Work::Wait(*word, *condition).is_ready(),
                _ => true,
            },
            _ => true,
        }
    }

    /// Goes on until the end, or until a value has to be waited for.
    pub(crate) fn run(&mut self) -> Progress {
        if !std::mem::replace(&mut self.begun, true)
            && let Some((program, _, _)) = self.frames.first()
        {
            program.begin();
        }
        while let Some((program, place, operation)) = self.frames.last_mut() {
            let Some(step) = program.steps.get(*place) else {
                self.frames.pop();
                continue;
            };
            if let Action::Batch(steps) = &step.action {
                let Some(memory) = steps.get(*operation) else {
                    (*place, *operation) = (*place + 1, 0);
                    continue;
                };
                let mut work = match memory {
                    MemoryStep::Wait(word, condition) => Work::Wait(*word, *condition),
                    MemoryStep::Write(word) => Work::Write(*word),
                    MemoryStep::Nothing => Work::Nothing,
                };
                match work.run() {
                    Progress::Done => *operation += 1,
                    progress => return progress,
                }
                continue;
            }
            if let Action::Conditional(start, kind, bodies) = &step.action {
                let value = start.get() as usize;
                let body = match *kind {
                    Kind::CU_GRAPH_COND_TYPE_SWITCH => bodies.get(value),
                    _ if value != 0 => bodies.first(),
                    Kind::CU_GRAPH_COND_TYPE_IF => bodies.get(1),
                    _ => None,
                };
                let body = body.cloned();
                // A loop comes back here.
                if *kind != Kind::CU_GRAPH_COND_TYPE_WHILE || body.is_none() {
                    *place += 1;
                }
                self.frames.extend(body.map(|body| (body, 0, 0)));
                continue;
            }
            *place += 1;
            if !step.enabled {
                continue;
            }
            let outcome = match &step.action {
                Action::Child(inner) => {
                    let inner = inner.clone();
                    self.frames.push((inner, 0, 0));
                    continue;
                }
                Action::Record(event) => match self.stamps.get(event) {
                    Some(stamp) => Work::Stamp(stamp.clone()).run(),
                    None => Progress::Done,
                },
                Action::Allocate => {
                    let outcome = Cpu::get().graphs.memory.allocate(step.address, self.auto_free);
                    outcome.map_or_else(Progress::Failed, |()| Progress::Done)
                }
                Action::Free(address) => match Cpu::get().graphs.memory.free(*address) {
                    true => Progress::Done,
                    false => Progress::Failed(CUresult::CUDA_ERROR_INVALID_VALUE),
                },
                Action::Host(call) => {
                    let _one_at_a_time = self.context.calling.lock();
                    self.context.output.flush();
                    call.lock().call(CUresult::CUDA_SUCCESS);
                    Progress::Done
                }
                action => action.run(),
            };
            if !matches!(outcome, Progress::Done) {
                return outcome;
            }
        }
        Progress::Done
    }
}

impl Action {
    /// Programs inside it.
    fn inner(&self) -> &[Arc<Program>] {
        match self {
            Action::Child(inner) => std::slice::from_ref(inner),
            Action::Conditional(_, _, bodies) => bodies,
            _ => &[],
        }
    }

    /// Runs what needs nothing of the replay.
    fn run(&self) -> Progress {
        match self {
            Action::Launch(grid) => grid.run().map_or_else(Progress::Failed, |()| Progress::Done),
            Action::Copy(slices) => {
                for (dst, src, rect) in slices.iter() {
                    let _ = Work::Copy { dst: *dst, src: *src, rect: *rect }.run();
                }
                Progress::Done
            }
            Action::Fill(fill) => Work::Fill(*fill).run(),
            _ => Progress::Done,
        }
    }
}
