//! Graphs.

use outboard_abi::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExecUpdateResult_enum, CUgraphExecUpdateResultInfo,
    CUgraphInstantiate_flags_enum, CUgraphInstantiateResult_enum as Made,
    CUgraphMem_attribute_enum, CUresult,
};
use outboard_driver::call;
use outboard_wire::ObjectId;
use outboard_wire::messages::*;

use crate::answer::{Answer, Outcome};
use crate::bounds::Nodes;
use crate::generated::dispatch::GraphCommands;
use crate::worker::Worker;

/// An update that did not work out: the driver's word for it, and the nodes to blame.
type Blame = (u32, u64, u64);

impl Worker {
    pub(super) fn make_graph(&mut self, name: ObjectId) -> Outcome {
        self.enter()?;
        self.graphs.check_new(name)?;
        let mut native = core::ptr::null_mut();
        call!(self.table, cuGraphCreate(&raw mut native, 0))?;
        self.graphs.add(name, native);
        Ok(())
    }

    /// Makes an executable; gives what kernels launch it by, or 0. A failure comes with the
    /// driver's word for it and the node.
    fn instantiate(&mut self, m: &GraphInstantiate) -> Result<u64, (CUresult, u32, u64)> {
        let plain = |error| (error, Made::CUDA_GRAPH_INSTANTIATE_ERROR.0, 0);
        let stream = self.stream(m.stream).map_err(plain)?;
        self.graphs.check_new_exec(m.exec).map_err(plain)?;
        let nodes = Nodes::take(self.graphs.count_nodes(m.graph).map_err(plain)?).map_err(plain)?;
        self.renew_host_parts(m.graph).map_err(plain)?;
        let graph = self.graphs.graph(m.graph).map_err(plain)?;
        if let Some((error, node)) = graph.error {
            return Err((error, Made::CUDA_GRAPH_INSTANTIATE_ERROR.0, node));
        }
        let mut native = core::ptr::null_mut();
        let mut p = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: m.flags,
            hUploadStream: stream,
            hErrNode_out: core::ptr::null_mut(),
            result_out: Made::CUDA_GRAPH_INSTANTIATE_ERROR,
        };
        call!(
            self.table,
            cuGraphInstantiateWithParams(&raw mut native, graph.native.get(), &raw mut p)
        )
        .map_err(|error| (error, p.result_out.0, graph.name_of(p.hErrNode_out)))?;
        self.graphs.add_exec(m.exec, m.graph, native, nodes).map_err(plain)?;
        let launched_by_kernels =
            u64::from(CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0);
        Ok(if m.flags & launched_by_kernels != 0 { native as u64 } else { 0 })
    }

    /// Whether the session may have what a launch allocates.
    fn check_memory(&mut self, exec: ObjectId) -> Outcome {
        let memory = self.graphs.memory_of(exec);
        memory.into_iter().try_for_each(|(device, bytes)| self.check_graph(device, bytes))
    }

    fn update(&mut self, m: &GraphExecUpdate) -> Result<(), (CUresult, Blame)> {
        let nothing = (CUgraphExecUpdateResult_enum::CU_GRAPH_EXEC_UPDATE_ERROR.0, 0, 0);
        let plain = |error| (error, nothing);
        self.enter().map_err(plain)?;
        self.renew_host_parts(m.graph).map_err(plain)?;
        let exec = self.graphs.exec(m.exec).map_err(plain)?;
        let graph = self.graphs.graph(m.graph).map_err(plain)?;
        if let Some((error, node)) = graph.error {
            return Err((error, (nothing.0, node, 0)));
        }
        let mut info = CUgraphExecUpdateResultInfo {
            result: CUgraphExecUpdateResult_enum::CU_GRAPH_EXEC_UPDATE_ERROR,
            errorNode: core::ptr::null_mut(),
            errorFromNode: core::ptr::null_mut(),
        };
        call!(self.table, cuGraphExecUpdate_v2(exec, graph.native.get(), &raw mut info)).map_err(
            |error| {
                (
                    error,
                    (
                        info.result.0,
                        graph.name_of(info.errorNode),
                        graph.name_of(info.errorFromNode),
                    ),
                )
            },
        )?;
        let before = self.graphs.update_exec(m.exec, m.graph);
        self.leave(m.exec, before);
        Ok(())
    }
}

impl GraphCommands for Worker {
    fn graph_create(&mut self, m: GraphCreate) -> Outcome {
        self.make_graph(m.graph)
    }

    fn graph_change(&mut self, m: GraphChange) -> Outcome {
        self.enter()?;
        m.edits.into_iter().try_for_each(|edit| self.apply(m.graph, edit))
    }

    fn graph_allocate(&mut self, m: GraphAllocate, answer: Answer<GraphAllocate>) {
        let known = self.offered.ordinal(m.params.device);
        let outcome = known.and_then(|_| self.enter().map(drop));
        let outcome =
            outcome.and_then(|()| self.add_allocation(m.graph, m.node, m.dependencies, m.params));
        answer.result(outcome.map(|address| GraphAllocateReply { address }));
    }

    fn graph_condition(&mut self, m: GraphCondition, answer: Answer<GraphCondition>) {
        let outcome = self.enter().and_then(|context| {
            let (graph, mut handle) = (self.graphs.graph(m.graph)?.native.get(), 0);
            let ctx = super::current(&context);
            call!(
                self.table,
                cuGraphConditionalHandleCreate(&raw mut handle, graph, ctx, m.value, m.flags)
            )?;
            Ok(GraphConditionReply { handle })
        });
        answer.result(outcome);
    }

    fn graph_destroy(&mut self, m: GraphDestroy) -> Outcome {
        self.enter()?;
        self.graphs.drop_graph(self.table, m.graph)
    }

    fn graph_instantiate(&mut self, m: GraphInstantiate, answer: Answer<GraphInstantiate>) {
        let reply = match self.instantiate(&m) {
            Ok(handle) => GraphInstantiateReply {
                status: 0,
                result: Made::CUDA_GRAPH_INSTANTIATE_SUCCESS.0,
                node: 0,
                handle,
            },
            Err((error, result, node)) => {
                GraphInstantiateReply { status: error.0, result, node, handle: 0 }
            }
        };
        answer.ok(&reply);
    }

    fn graph_exec_update(&mut self, m: GraphExecUpdate, answer: Answer<GraphExecUpdate>) {
        let success = CUgraphExecUpdateResult_enum::CU_GRAPH_EXEC_UPDATE_SUCCESS.0;
        let (status, (result, node, from)) = match self.update(&m) {
            Ok(()) => (0, (success, 0, 0)),
            Err((error, blame)) => (error.0, blame),
        };
        answer.ok(&GraphExecUpdateReply { status, result, node, from });
    }

    fn graph_exec_set(&mut self, m: GraphExecSet) -> Outcome {
        self.enter()?;
        self.set_exec_node(m.exec, m.node, &m.params)
    }

    fn graph_exec_enable(&mut self, m: GraphExecEnable) -> Outcome {
        self.enter()?;
        self.enable_exec_node(m.exec, m.node, m.enabled)
    }

    fn graph_upload(&mut self, m: GraphUpload) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.check_memory(m.exec)?;
        call!(self.table, cuGraphUpload(self.graphs.exec(m.exec)?, stream))
    }

    fn graph_launch(&mut self, m: GraphLaunch) -> Outcome {
        let stream = self.stream(m.stream)?;
        if self.graphs.has_allocated() {
            self.check_memory(m.exec)?;
        }
        if self.graphs.records_events(m.exec) {
            self.leaves_all_events();
        }
        call!(self.table, cuGraphLaunch(self.graphs.exec(m.exec)?, stream))
    }

    fn graph_exec_destroy(&mut self, m: GraphExecDestroy) -> Outcome {
        self.enter()?;
        let (exec, parts) = self.graphs.remove_exec(m.exec)?;
        let outcome = call!(self.table, cuGraphExecDestroy(exec));
        if !parts.is_empty() {
            // Launches under way may come to them yet.
            self.let_go(parts);
        }
        outcome
    }

    fn graph_memory_trim(&mut self, m: GraphMemoryTrim, answer: Answer<GraphMemoryTrim>) {
        let outcome = self
            .enter()
            .and_then(|_| call!(self.table, cuDeviceGraphMemTrim(m.device.ordinal() as i32)));
        answer.result(outcome.map(|()| GraphMemoryTrimReply {}));
    }

    fn graph_memory_get(&mut self, m: GraphMemoryGet, answer: Answer<GraphMemoryGet>) {
        let (attribute, mut value) = (CUgraphMem_attribute_enum(m.attribute), 0u64);
        let out = (&raw mut value).cast();
        let outcome = self.enter().and_then(|_| {
            call!(
                self.table,
                cuDeviceGetGraphMemAttribute(m.device.ordinal() as i32, attribute, out)
            )
        });
        answer.result(outcome.map(|()| GraphMemoryGetReply { value }));
    }

    fn graph_memory_set(&mut self, m: GraphMemorySet, answer: Answer<GraphMemorySet>) {
        let (attribute, mut value) = (CUgraphMem_attribute_enum(m.attribute), m.value);
        let from = (&raw mut value).cast();
        let outcome = self.enter().and_then(|_| {
            call!(
                self.table,
                cuDeviceSetGraphMemAttribute(m.device.ordinal() as i32, attribute, from)
            )
        });
        answer.result(outcome.map(|()| GraphMemorySetReply {}));
    }
}
