//! Nodes of the driver's graphs: adding them, and giving them other parameters.

use std::sync::Arc;

use outboard_abi::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUgraph, CUgraphConditionalNodeType_enum, CUgraphNode,
    CUgraphNodeParams, CUgraphNodeType_enum, CUlaunchAttributeID_enum, CUmemAccessDesc,
    CUmemAllocationType_enum, CUmemLocationType_enum, CUresult,
};
use outboard_driver::call;
use outboard_wire::graph::{
    AllocateNode, ConditionalNode, CopyNode, Edge, KernelNode, NodeParams, Place,
};
use outboard_wire::{DevicePtr, ObjectId};

use super::host::HostPart;
use super::params::{INVALID, batch_params, zeroed};
use super::{Graph, Node};
use crate::answer::Outcome;
use crate::bounds::{Kind, Nodes};
use crate::launch::is_plain;
use crate::objects::Handle;
use crate::worker::Worker;

/// Where a new node goes: the driver's graph and what comes before.
pub(super) struct Spot<'a> {
    pub(super) graph: CUgraph,
    pub(super) before: &'a [CUgraphNode],
}

/// The driver's nodes for a node: the first, the main one and the last.
pub(super) struct Built([CUgraphNode; 3], Vec<Arc<HostPart>>);

impl Built {
    pub(super) fn one(node: CUgraphNode) -> Built {
        Built([node; 3], Vec::new())
    }
}

impl Worker {
    /// Adds a node behind others.
    pub(super) fn add_node(
        &mut self,
        graph: ObjectId,
        name: u64,
        dependencies: Vec<Edge>,
        params: NodeParams,
    ) -> Outcome {
        let counted = Nodes::take(1)?;
        let built = {
            let found = self.graphs.graph(graph)?;
            if name == 0 || found.nodes.contains_key(&name) {
                return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
            }
            let native = found.native.get();
            let before = found.before(&dependencies)?;
            self.build(&Spot { graph: native, before: &before }, &params)?
        };
        self.note_node(graph, name, dependencies, params, (built, counted))
    }

    /// Keeps a node that has been made, and adds the edges that say more than that one comes first.
    fn note_node(
        &mut self,
        graph: ObjectId,
        name: u64,
        dependencies: Vec<Edge>,
        params: NodeParams,
        (Built([first, main, last], host), counted): (Built, Nodes),
    ) -> Outcome {
        let special: Vec<Edge> =
            dependencies.iter().filter(|edge| edge.ports != [0; 3]).copied().collect();
        let (first, main, last) = (Handle::new(first), Handle::new(main), Handle::new(last));
        let node = Node { first, main, last, params, dependencies, host, _counted: counted };
        if let Some(graph) = self.graphs.all.get_mut(&graph) {
            graph.nodes.insert(name, node);
        }
        special
            .into_iter()
            .try_for_each(|edge| self.graphs.edge(self.table, graph, edge, name, true))
    }

    /// Adds a node that allocates; its address.
    pub(crate) fn add_allocation(
        &mut self,
        graph: ObjectId,
        name: u64,
        dependencies: Vec<Edge>,
        params: AllocateNode,
    ) -> Result<DevicePtr, CUresult> {
        let found = self.graphs.graph(graph)?;
        if name == 0 || found.nodes.contains_key(&name) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let counted = Nodes::take(1)?;
        Kind::Allocation.room(self.memory.allocations.len())?;
        let before = found.before(&dependencies)?;
        let access: Vec<CUmemAccessDesc> = params
            .access
            .iter()
            .map(|(device, flags)| {
                let mut access: CUmemAccessDesc = zeroed();
                access.location.type_ = CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
                access.location.id = device.ordinal() as i32;
                access.flags.0 = *flags;
                access
            })
            .collect();
        let mut native: CUDA_MEM_ALLOC_NODE_PARAMS = zeroed();
        native.poolProps.allocType = CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
        native.poolProps.location.type_ = CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        native.poolProps.location.id = params.device.ordinal() as i32;
        native.accessDescs = if access.is_empty() { core::ptr::null() } else { access.as_ptr() };
        native.accessDescCount = access.len();
        native.bytesize = params.bytes as usize;
        let mut node = core::ptr::null_mut();
        let graph_handle = found.native.get();
        let (before, count) = (before.as_ptr(), before.len());
        call!(
            self.table,
            cuGraphAddMemAllocNode(&raw mut node, graph_handle, before, count, &raw mut native)
        )?;
        let (address, bytes) = (DevicePtr(native.dptr), params.bytes);
        self.note_node(
            graph,
            name,
            dependencies,
            NodeParams::Allocate(params),
            (Built::one(node), counted),
        )?;
        self.memory.allocations.insert(address, bytes, self.contexts.here());
        self.graphs.allocates(graph, address);
        Ok(address)
    }

    fn build(&mut self, spot: &Spot<'_>, params: &NodeParams) -> Result<Built, CUresult> {
        let (table, graph, before, count) =
            (self.table, spot.graph, spot.before.as_ptr(), spot.before.len());
        let mut node: CUgraphNode = core::ptr::null_mut();
        let out = &raw mut node;
        match params {
            NodeParams::Empty => call!(table, cuGraphAddEmptyNode(out, graph, before, count))?,
            NodeParams::Kernel(kernel) => {
                self.with_kernel(kernel, |p| {
                    call!(table, cuGraphAddKernelNode_v2(out, graph, before, count, p))
                })?;
                self.set_attributes(node, kernel)?;
            }
            NodeParams::Copy(copy) => return self.build_copy(spot, copy),
            NodeParams::Fill(fill) => {
                let (p, ctx) = self.fill(fill)?;
                call!(table, cuGraphAddMemsetNode(out, graph, before, count, &raw const p, ctx))?;
            }
            NodeParams::Host(host) => {
                let part = self.host_call_part(host)?;
                let p = part.params();
                call!(table, cuGraphAddHostNode(out, graph, before, count, &raw const p))?;
                return Ok(Built([node; 3], vec![part]));
            }
            NodeParams::Child { graph: child, moved: true } => {
                return self.graphs.build_moved(self.table, spot, *child);
            }
            NodeParams::Child { graph: child, moved: false } => {
                let child = self.graphs.graph(*child)?;
                let (native, host) = (child.native.get(), child.host());
                call!(table, cuGraphAddChildGraphNode(out, graph, before, count, native))?;
                return Ok(Built([node; 3], host));
            }
            NodeParams::Captured { graph: captured, .. } => {
                let native = self.graphs.graph(*captured)?.native.get();
                call!(table, cuGraphAddChildGraphNode(out, graph, before, count, native))?;
            }
            NodeParams::EventRecord { event } => {
                let event = self.streams.event(*event)?;
                call!(table, cuGraphAddEventRecordNode(out, graph, before, count, event))?;
            }
            NodeParams::EventWait { event } => {
                let event = self.streams.event(*event)?;
                call!(table, cuGraphAddEventWaitNode(out, graph, before, count, event))?;
            }
            // Its address would have to be answered.
            NodeParams::Allocate(_) => return Err(INVALID),
            NodeParams::Free { address } => {
                self.memory.allocations.check(*address, 1)?;
                call!(table, cuGraphAddMemFreeNode(out, graph, before, count, address.0))?;
            }
            NodeParams::Batch(batch) => {
                let (mut list, ctx) = self.batch(batch)?;
                let p = batch_params(&mut list, ctx, batch.flags);
                call!(table, cuGraphAddBatchMemOpNode(out, graph, before, count, &raw const p))?;
            }
            NodeParams::Conditional(conditional) => {
                self.build_conditional(spot, conditional, out)?
            }
        }
        Ok(Built::one(node))
    }

    fn set_attributes(&self, node: CUgraphNode, kernel: &KernelNode) -> Outcome {
        for (id, value) in &kernel.attributes {
            let cooperative = CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_COOPERATIVE.0;
            if !is_plain(*id) && *id != cooperative {
                return Err(INVALID);
            }
            let value = value.as_ptr().cast();
            call!(
                self.table,
                cuGraphKernelNodeSetAttribute(node, CUlaunchAttributeID_enum(*id), value)
            )?;
        }
        Ok(())
    }

    fn build_conditional(
        &mut self,
        spot: &Spot<'_>,
        node: &ConditionalNode,
        out: *mut CUgraphNode,
    ) -> Outcome {
        let mut p: CUgraphNodeParams = zeroed();
        p.type_ = CUgraphNodeType_enum::CU_GRAPH_NODE_TYPE_CONDITIONAL;
        p.__bindgen_anon_1.conditional.handle = node.handle;
        p.__bindgen_anon_1.conditional.type_ = CUgraphConditionalNodeType_enum(node.kind);
        self.graphs.check_room(node.bodies.len())?;
        p.__bindgen_anon_1.conditional.size = node.bodies.len() as u32;
        p.__bindgen_anon_1.conditional.ctx = self.context_of(node.ctx)?;
        let (before, count) = (spot.before.as_ptr(), spot.before.len());
        if self.table.cuGraphAddNode_v2.is_some() {
            let data = core::ptr::null();
            call!(self.table, cuGraphAddNode_v2(out, spot.graph, before, data, count, &raw mut p))?;
        } else {
            call!(self.table, cuGraphAddNode(out, spot.graph, before, count, &raw mut p))?;
        }
        // SAFETY: the driver has set it to as many graphs as were asked for.
        let bodies = unsafe {
            std::slice::from_raw_parts(
                p.__bindgen_anon_1.conditional.phGraph_out,
                node.bodies.len(),
            )
        };
        for (name, native) in node.bodies.iter().zip(bodies) {
            self.graphs.all.insert(*name, Graph::new(*native, true));
        }
        Ok(())
    }

    /// A copy. If a side is the client's memory, it goes through memory here, and functions before
    /// or behind it do the exchange.
    fn build_copy(&mut self, spot: &Spot<'_>, copy: &CopyNode) -> Result<Built, CUresult> {
        let table = self.table;
        let number =
            |place: &Place| if let Place::Host(rows) = place { Some(rows.address.0) } else { None };
        let (read, write) = (number(&copy.src), number(&copy.dst));
        let [width, height, depth] = copy.extent;
        let bytes =
            width.checked_mul(height).and_then(|slice| slice.checked_mul(depth)).ok_or(INVALID)?;
        let memory = if read.is_some() || write.is_some() {
            Some(self.exchange_memory(bytes)?)
        } else {
            None
        };
        let (mut host, mut nodes) = (Vec::new(), Vec::new());
        let mut before = spot.before.to_vec();
        let mut call_back = |worker: &Worker,
                             read,
                             write,
                             before: &mut Vec<CUgraphNode>|
         -> Outcome {
            let Some(memory) = &memory else { return Ok(()) };
            let part = worker.exchange_part(memory, read, write)?;
            let (p, mut node) = (part.params(), core::ptr::null_mut());
            let (list, count) = (before.as_ptr(), before.len());
            call!(table, cuGraphAddHostNode(&raw mut node, spot.graph, list, count, &raw const p))?;
            host.push(part);
            *before = vec![node];
            nodes.push(node);
            Ok(())
        };
        if read.is_some() && write.is_some() {
            call_back(self, read, write, &mut before)?;
            let node = nodes[0];
            return Ok(Built([node; 3], host));
        }
        if read.is_some() {
            call_back(self, read, None, &mut before)?;
        }
        let p = self.copy(copy, memory.as_ref())?;
        let (list, count, ctx) = (before.as_ptr(), before.len(), self.context_of(copy.ctx)?);
        let mut main = core::ptr::null_mut();
        call!(
            table,
            cuGraphAddMemcpyNode(&raw mut main, spot.graph, list, count, &raw const p, ctx)
        )?;
        if write.is_some() {
            let mut behind = vec![main];
            call_back(self, None, write, &mut behind)?;
        }
        let ends = match (read, write) {
            (Some(_), _) => [nodes[0], main, main],
            (None, Some(_)) => [main, main, nodes[0]],
            (None, None) => [main; 3],
        };
        Ok(Built(ends, host))
    }

    /// Gives a node other parameters.
    pub(super) fn set_node(&mut self, graph: ObjectId, name: u64, params: NodeParams) -> Outcome {
        let table = self.table;
        let node = self.graphs.graph(graph)?.node(name)?.main.get();
        match &params {
            NodeParams::Kernel(kernel) => {
                self.with_kernel(kernel, |p| call!(table, cuGraphKernelNodeSetParams_v2(node, p)))?;
                self.set_attributes(node, kernel)?;
            }
            NodeParams::Fill(fill) => {
                let (p, _) = self.fill(fill)?;
                call!(table, cuGraphMemsetNodeSetParams(node, &raw const p))?;
            }
            NodeParams::EventRecord { event } => {
                let event = self.streams.event(*event)?;
                call!(table, cuGraphEventRecordNodeSetEvent(node, event))?;
            }
            NodeParams::EventWait { event } => {
                let event = self.streams.event(*event)?;
                call!(table, cuGraphEventWaitNodeSetEvent(node, event))?;
            }
            NodeParams::Batch(batch) => {
                let (mut list, ctx) = self.batch(batch)?;
                let p = batch_params(&mut list, ctx, batch.flags);
                call!(table, cuGraphBatchMemOpNodeSetParams(node, &raw const p))?;
            }
            NodeParams::Allocate(_)
            | NodeParams::Free { .. }
            | NodeParams::Conditional(_)
            | NodeParams::Captured { .. }
            | NodeParams::Child { moved: true, .. } => return Err(INVALID),
            // The others are made anew, which gives them memory and functions of their own.
            NodeParams::Copy(_)
            | NodeParams::Host(_)
            | NodeParams::Child { .. }
            | NodeParams::Empty => {
                return self.replace_node(graph, name, params);
            }
        }
        self.graphs.with_node(graph, name, |node| node.params = params)
    }
}

impl Graph {
    /// The driver's nodes that come before one with these dependencies; those whose edges say more
    /// come later.
    fn before(&self, dependencies: &[Edge]) -> Result<Vec<CUgraphNode>, CUresult> {
        let plain = dependencies.iter().filter(|edge| edge.ports == [0; 3]);
        let nodes = plain
            .map(|edge| self.node(edge.node).map(|node| node.last.get()))
            .collect::<Result<Vec<_>, _>>()?;
        for edge in dependencies {
            self.node(edge.node)?;
        }
        Ok(nodes)
    }
}
