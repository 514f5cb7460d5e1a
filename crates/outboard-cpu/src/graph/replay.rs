//! A graph under way in a stream.

use std::collections::HashMap;
use std::sync::Arc;

use outboard_abi::{CUgraphConditionalNodeType_enum as Kind, CUresult};
use outboard_wire::ObjectId;

use super::memory::GraphMemory;
use super::program::{Action, MemoryStep, Program};
use crate::context::Context;
use crate::work::{Progress, Stamp, Work};

/// A program that a stream runs.
pub(crate) struct Replay {
    /// The graph and those inside it that are under way, each with the place of its next step and
    /// of the next operation of a batch.
    frames: Vec<(Arc<Program>, usize, usize)>,
    stamps: HashMap<ObjectId, Arc<Stamp>>,
    begun: bool,
    /// Where it was launched.
    context: Arc<Context>,
    auto_free: bool,
    memory: &'static GraphMemory,
}

impl Replay {
    /// A run of a program, and for each event that it records what takes the time.
    pub(super) fn new(
        program: Arc<Program>,
        context: Arc<Context>,
        auto_free: bool,
        memory: &'static GraphMemory,
    ) -> (Replay, Vec<(ObjectId, Arc<Stamp>)>) {
        let records = program
            .events(|action| if let Action::Record(event) = action { Some(*event) } else { None });
        let stamps: HashMap<ObjectId, Arc<Stamp>> =
            records.into_iter().map(|event| (event, Arc::new(Stamp::default()))).collect();
        let list = stamps.iter().map(|(event, stamp)| (*event, stamp.clone())).collect();
        let frames = vec![(program, 0, 0)];
        (Replay { frames, stamps, begun: false, context, auto_free, memory }, list)
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
                    let outcome = self.memory.allocate(step.address, self.auto_free);
                    outcome.map_or_else(Progress::Failed, |()| Progress::Done)
                }
                Action::Free(address) => match self.memory.free(*address) {
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
    /// Runs what needs nothing of the replay.
    fn run(&self) -> Progress {
        match self {
            Action::Launch(grid) => grid.run().map_or_else(Progress::Failed, |()| Progress::Done),
            Action::Copy(copy) => {
                copy.run();
                Progress::Done
            }
            Action::Fill(fill) => Work::Fill(*fill).run(),
            _ => Progress::Done,
        }
    }
}
