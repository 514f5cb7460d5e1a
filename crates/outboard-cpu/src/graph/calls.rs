//! Graphs: edited, made ready, launched.

use std::sync::Arc;

use outboard_abi::{
    CUgraphExecUpdateResult_enum as UpdateResult, CUgraphInstantiateResult_enum as Made, CUresult,
};
use outboard_front::backend::{
    ContextId, DeviceId, DevicePtr, Graphs, Instantiated, ObjectId, Result, StreamId, Updated,
};
use outboard_wire::graph::{AllocateNode, Edge, GraphEdit, NodeParams};
use parking_lot::Mutex;

use super::Exec;
use super::model::Model;
use super::program::{Start, Step};
use super::replay::Replay;
use crate::cpu::{Cpu, lane};
use crate::work::Work;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: u32 = 1;
/// Bytes of the value of a conditional node.
const VALUE: u64 = 4;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`, `_DEVICE_LAUNCH`.
const AUTO_FREE: u64 = 1;
const DEVICE_LAUNCH: u64 = 4;

impl Cpu {
    fn exec(&self, exec: ObjectId) -> Result<Arc<Exec>> {
        self.graphs.execs.get(exec)
    }
}

impl Graphs for Cpu {
    fn graph_create(&self, ctx: ContextId, graph: ObjectId) -> Result<()> {
        self.graphs.models.insert(graph, Mutex::new(Model::new(ctx)));
        Ok(())
    }

    fn graph_edit(&self, ctx: ContextId, graph: ObjectId, edits: Vec<GraphEdit>) -> Result<()> {
        let model = self.graphs.models.get(graph)?;
        for edit in edits {
            if let GraphEdit::Add { params: NodeParams::Conditional(node), .. } = &edit {
                for body in &node.bodies {
                    self.graphs.models.insert(*body, Mutex::new(Model::new(ctx)));
                }
            }
            model.lock().apply(edit);
        }
        Ok(())
    }

    fn graph_allocate(
        &self,
        ctx: ContextId,
        graph: ObjectId,
        node: u64,
        dependencies: Vec<Edge>,
        params: AllocateNode,
    ) -> Result<DevicePtr> {
        let model = self.graphs.models.get(graph)?;
        let context = self.context(ctx)?;
        let mut model = model.lock();
        let address = match model.reusable(&dependencies, params.bytes) {
            Some(address) => address,
            None => {
                let address = context.alloc(params.bytes)?;
                self.graphs.memory.add(context, graph, address, params.bytes);
                address
            }
        };
        model.allocated(node, address, params.bytes);
        model.apply(GraphEdit::Add { node, dependencies, params: NodeParams::Allocate(params) });
        Ok(DevicePtr(address))
    }

    fn graph_condition(
        &self,
        ctx: ContextId,
        graph: ObjectId,
        value: u32,
        flags: u32,
    ) -> Result<u64> {
        self.graphs.models.get(graph)?;
        // Kernels set the value by the handle: it is the value's address.
        let handle = self.context(ctx)?.alloc(VALUE)?;
        let start = Start { handle, value: (flags & ASSIGN_DEFAULT != 0).then_some(value) };
        start.set(value);
        self.graphs.starts.lock().insert(handle, start);
        Ok(handle)
    }

    fn graph_destroy(&self, _ctx: ContextId, graph: ObjectId) -> Result<()> {
        self.graphs.models.remove(graph)?;
        self.graphs.memory.orphan(graph);
        Ok(())
    }

    fn graph_instantiate(
        &self,
        ctx: ContextId,
        graph: ObjectId,
        exec: ObjectId,
        flags: u64,
        _stream: StreamId,
    ) -> Result<Instantiated> {
        let failed = |status, node| {
            let result = Made::CUDA_GRAPH_INSTANTIATE_ERROR.0;
            Ok(Instantiated { status, result, node, handle: 0 })
        };
        if flags & DEVICE_LAUNCH != 0 {
            // Its kernels cannot launch anything.
            return failed(CUresult::CUDA_ERROR_NOT_SUPPORTED, 0);
        }
        match self.compile(graph) {
            Err((status, node)) => failed(status, node),
            Ok(program) => {
                let blocks = program.blocks();
                self.graphs.memory.hold(&blocks);
                self.graphs.execs.insert(
                    exec,
                    Exec {
                        ctx,
                        program: Mutex::new(Arc::new(program)),
                        latest: Mutex::new(None),
                        auto_free: flags & AUTO_FREE != 0,
                        blocks: Mutex::new(blocks),
                    },
                );
                let result = Made::CUDA_GRAPH_INSTANTIATE_SUCCESS.0;
                Ok(Instantiated { status: CUresult::CUDA_SUCCESS, result, node: 0, handle: 0 })
            }
        }
    }

    fn graph_exec_update(
        &self,
        _ctx: ContextId,
        exec: ObjectId,
        graph: ObjectId,
    ) -> Result<Updated> {
        let exec = self.exec(exec)?;
        let failed = |result: UpdateResult, node| {
            let status = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
            Ok(Updated { status, result: result.0, node, from: 0 })
        };
        let fresh = match self.compile(graph) {
            Ok(fresh) => fresh,
            Err((_, node)) => return failed(UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR, node),
        };
        let mut program = exec.program.lock();
        if let Err((result, node)) = program.admits(&fresh) {
            return failed(result, node);
        }
        let blocks = fresh.blocks();
        self.graphs.memory.hold(&blocks);
        exec.blocks.lock().extend(blocks);
        *program = Arc::new(program.updated(fresh));
        let result = UpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS.0;
        Ok(Updated { status: CUresult::CUDA_SUCCESS, result, node: 0, from: 0 })
    }

    fn graph_exec_set(
        &self,
        _ctx: ContextId,
        exec: ObjectId,
        node: u64,
        params: NodeParams,
    ) -> Result<()> {
        let action = self.action(&params)?;
        let exec = self.exec(exec)?;
        let mut program = exec.program.lock();
        Arc::make_mut(&mut program).change(node, |step: &mut Step| {
            step.params = params;
            step.action = action;
        })
    }

    fn graph_exec_enable(
        &self,
        _ctx: ContextId,
        exec: ObjectId,
        node: u64,
        enabled: bool,
    ) -> Result<()> {
        let exec = self.exec(exec)?;
        let mut program = exec.program.lock();
        Arc::make_mut(&mut program).change(node, |step| step.enabled = enabled)
    }

    fn graph_upload(&self, _ctx: ContextId, exec: ObjectId, _stream: StreamId) -> Result<()> {
        self.exec(exec).map(drop)
    }

    fn graph_launch(&'static self, ctx: ContextId, exec: ObjectId, stream: StreamId) -> Result<()> {
        let exec = self.exec(exec)?;
        let lane = lane(ctx, stream);
        let program = exec.program.lock().clone();
        let scheduler = &self.scheduler;
        // A launch takes the records that events have now.
        for event in program.waits() {
            if let Some(record) = self.event(event)?.latest() {
                scheduler.submit(ctx, lane, Work::Nothing, Some(record.ticket))?;
            }
        }
        let (replay, stamps) =
            Replay::new(program, self.context(ctx)?, exec.auto_free, &self.graphs.memory);
        let mut latest = exec.latest.lock();
        let ticket = scheduler.submit(ctx, lane, Work::Replay(Box::new(replay)), *latest)?;
        *latest = Some(ticket);
        for (event, stamp) in stamps {
            self.event(event)?.record(ticket, stamp);
        }
        Ok(())
    }

    fn graph_exec_destroy(&self, _ctx: ContextId, exec: ObjectId) -> Result<()> {
        let gone = self.graphs.execs.remove(exec)?;
        self.graphs.memory.let_go(&gone.blocks.lock());
        Ok(())
    }

    fn graph_memory_trim(&self, _ctx: ContextId, _device: DeviceId) -> Result<()> {
        self.graphs.memory.trim();
        Ok(())
    }

    fn graph_memory_get(&self, _ctx: ContextId, _device: DeviceId, attribute: u32) -> Result<u64> {
        self.graphs.memory.attribute(attribute)
    }

    fn graph_memory_set(
        &self,
        _ctx: ContextId,
        _device: DeviceId,
        attribute: u32,
        _value: u64,
    ) -> Result<()> {
        self.graphs.memory.reset(attribute)
    }
}
