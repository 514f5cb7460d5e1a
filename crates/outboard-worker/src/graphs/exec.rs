//! Nodes of the driver's executables.

use std::sync::Arc;

use outboard_abi::{CUgraphNode, CUresult};
use outboard_driver::call;
use outboard_wire::ObjectId;
use outboard_wire::graph::{NodeParams, Place};

use super::host::HostPart;
use super::params::{INVALID, batch_params};
use crate::answer::Outcome;
use crate::worker::Worker;

impl Worker {
    /// Gives a node of an executable other parameters. Its graph must still be there: the driver
    /// names the node by it.
    pub(crate) fn set_exec_node(
        &mut self,
        exec: ObjectId,
        name: u64,
        params: &NodeParams,
    ) -> Outcome {
        let table = self.table;
        let (native, graph) = {
            let found = self.graphs.execs.get(&exec).ok_or(INVALID)?;
            (found.native.get(), found.graph)
        };
        let [first, node, last] = self.graphs.nodes_within(self.table, graph, name)?;
        match params {
            NodeParams::Kernel(kernel) => self.with_kernel(kernel, |p| {
                call!(table, cuGraphExecKernelNodeSetParams_v2(native, node, p))
            }),
            NodeParams::Fill(fill) => {
                let (p, ctx) = self.fill(fill)?;
                call!(table, cuGraphExecMemsetNodeSetParams(native, node, &raw const p, ctx))
            }
            NodeParams::EventRecord { event } => {
                let event = self.streams.event(*event)?;
                call!(table, cuGraphExecEventRecordNodeSetEvent(native, node, event))
            }
            NodeParams::EventWait { event } => {
                let event = self.streams.event(*event)?;
                call!(table, cuGraphExecEventWaitNodeSetEvent(native, node, event))
            }
            NodeParams::Batch(batch) => {
                let (mut list, ctx) = self.batch(batch)?;
                let p = batch_params(&mut list, ctx, batch.flags);
                call!(table, cuGraphExecBatchMemOpNodeSetParams(native, node, &raw const p))
            }
            NodeParams::Child { graph, .. } => {
                let child = self.graphs.graph(*graph)?;
                let (child, host) = (child.native.get(), child.host());
                call!(table, cuGraphExecChildGraphNodeSetParams(native, node, child))?;
                let within = self.graphs.exchanges(*graph);
                let found = self.graphs.execs.get_mut(&exec).ok_or(INVALID)?;
                host.iter().for_each(|part| found.calls_also(part));
                // Another child may also be a copy of the graph that it called before.
                found.exchanges.extend(within);
                Ok(())
            }
            NodeParams::Host(host) => {
                let part = self.host_call_part(host)?;
                let p = part.params();
                call!(table, cuGraphExecHostNodeSetParams(native, node, &raw const p))?;
                let found = self.graphs.execs.get_mut(&exec).ok_or(INVALID)?;
                found.calls_also(&part);
                let before =
                    found.calls.insert(name, part).map(|before| found.calls_no_more(before));
                self.leave(exec, before);
                Ok(())
            }
            NodeParams::Copy(copy) => {
                let number = |place: &Place| {
                    if let Place::Host(rows) = place { Some(rows.address.0) } else { None }
                };
                let (read, write) = (number(&copy.src), number(&copy.dst));
                if read.is_none() && write.is_none() {
                    let (p, ctx) = (self.copy(copy, None)?, self.context_of(copy.ctx)?);
                    call!(table, cuGraphExecMemcpyNodeSetParams(native, node, &raw const p, ctx))?;
                    // The client's memory is no longer asked for.
                    if asking([first, node, last]) != node {
                        let part = self.idle_part(exec)?;
                        self.exchange_with(exec, name, asking([first, node, last]), part)?;
                    }
                    return Ok(());
                }
                let [width, height, depth] = copy.extent;
                let bytes = width
                    .checked_mul(height)
                    .and_then(|slice| slice.checked_mul(depth))
                    .ok_or(INVALID)?;
                let memory = self.exchange_memory(bytes)?;
                let part = self.exchange_part(&memory, read, write)?;
                // From here on the driver may use its memory, even if not all of this succeeds.
                self.graphs.execs.get_mut(&exec).ok_or(INVALID)?.calls_also(&part);
                if read.is_none() || write.is_none() {
                    let (p, ctx) = (self.copy(copy, Some(&memory))?, self.context_of(copy.ctx)?);
                    call!(table, cuGraphExecMemcpyNodeSetParams(native, node, &raw const p, ctx))?;
                }
                self.exchange_with(exec, name, if read.is_some() { first } else { last }, part)
            }
            NodeParams::Empty
            | NodeParams::Allocate(_)
            | NodeParams::Free { .. }
            | NodeParams::Captured { .. }
            | NodeParams::Conditional(_) => Err(INVALID),
        }
    }

    /// From now on this part brings the client's bytes for a node; while the node is switched off,
    /// it only would.
    fn exchange_with(
        &mut self,
        exec: ObjectId,
        name: u64,
        asks: CUgraphNode,
        part: Arc<HostPart>,
    ) -> Outcome {
        let found = self.graphs.execs.get_mut(&exec).ok_or(INVALID)?;
        if !found.off.contains(&name) {
            let p = part.params();
            call!(
                self.table,
                cuGraphExecHostNodeSetParams(found.native.get(), asks, &raw const p)
            )?;
        }
        found.calls_also(&part);
        // One that does nothing may be other nodes' as well.
        let before = found.exchanges.insert(name, part).filter(|before| before.has_memory());
        let before = before.map(|before| found.calls_no_more(before));
        self.leave(exec, before);
        Ok(())
    }

    /// Switches a node of an executable on or off, and what goes with it: the driver switches no
    /// functions, so that these get nothing to do.
    pub(crate) fn enable_exec_node(&mut self, exec: ObjectId, name: u64, enabled: bool) -> Outcome {
        let idle = self.idle_part(exec)?;
        let graph = self.graphs.execs.get(&exec).ok_or(INVALID)?.graph;
        let natives = self.graphs.nodes_within(self.table, graph, name)?;
        let (asks, main) = (asking(natives), natives[1]);
        let found = self.graphs.execs.get_mut(&exec).ok_or(INVALID)?;
        let exchange = found.exchanges.get(&name);
        if let Some(part) = exchange {
            let p = if enabled { part.params() } else { idle.params() };
            call!(
                self.table,
                cuGraphExecHostNodeSetParams(found.native.get(), asks, &raw const p)
            )?;
        } else if asks != main {
            // An update from another graph: what the node brings now is not known.
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        if exchange.is_none() || asks != main {
            call!(self.table, cuGraphNodeSetEnabled(found.native.get(), main, u32::from(enabled)))?;
        }
        found.calls_also(&idle);
        if enabled {
            found.off.remove(&name)
        } else {
            found.off.insert(name)
        };
        Ok(())
    }
}

/// Which of a node's natives has the client's bytes brought, if there is one: before the main one,
/// behind it, or all there is.
fn asking([first, main, last]: [CUgraphNode; 3]) -> CUgraphNode {
    if first == main { last } else { first }
}
