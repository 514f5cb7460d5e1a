//! What the driver calls for the nodes of a session's graphs, and when it is let go.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_wire::graph::HostNode;
use outboard_wire::{ContextId, ObjectId};

use super::host::{HostPart, MOST_PINNED, Memory, Task};
use crate::contexts::{Context, current};
use crate::worker::Worker;

impl Worker {
    fn host_part(&self, ctx: ContextId, task: Task) -> Result<Arc<HostPart>, CUresult> {
        let reporter = self.client.reporter().cloned().ok_or(CUresult::CUDA_ERROR_UNKNOWN)?;
        Ok(Arc::new(HostPart { ctx, task, reporter }))
    }

    /// For a host node.
    pub(super) fn host_call_part(&self, node: &HostNode) -> Result<Arc<HostPart>, CUresult> {
        self.host_part(self.contexts.here(), Task::Call(node.function))
    }

    /// For a copy of an executable that has no need of the client any more. All of them share one.
    pub(super) fn idle_part(&self, exec: ObjectId) -> Result<Arc<HostPart>, CUresult> {
        let parts = self.graphs.execs.get(&exec).map(|exec| &exec.host);
        let known = parts.and_then(|parts| parts.iter().find(|part| part.is_idle()));
        known.map_or_else(
            || self.host_part(self.contexts.here(), Task::Nothing),
            |part| Ok(Arc::clone(part)),
        )
    }

    /// For a copy of `bytes` from or to the client's memory, through memory of its own.
    pub(super) fn exchange_part(
        &self,
        memory: &Arc<Memory>,
        read: Option<u64>,
        write: Option<u64>,
    ) -> Result<Arc<HostPart>, CUresult> {
        self.host_part(
            self.contexts.here(),
            Task::Exchange { memory: Arc::clone(memory), read, write },
        )
    }

    /// Memory for a copy of `bytes`, in the current context.
    pub(super) fn exchange_memory(&mut self, bytes: u64) -> Result<Arc<Memory>, CUresult> {
        if bytes == 0 || bytes > MOST_PINNED {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let pinned = self.hold_pinned(bytes)?;
        let mut address = core::ptr::null_mut();
        call!(self.table, cuMemHostAlloc(&raw mut address, bytes as usize, 1))?;
        Ok(Arc::new(Memory {
            table: self.table,
            address: address as usize,
            bytes,
            _pinned: pinned,
        }))
    }
}

impl Worker {
    /// Launches of an executable that are still to come do not need these any more.
    pub(crate) fn leave(&mut self, exec: ObjectId, parts: impl IntoIterator<Item = Arc<HostPart>>) {
        let Some(found) = self.graphs.execs.get_mut(&exec) else { return };
        parts.into_iter().for_each(|part| found.left.push(part));
        if let Some(much) = found.left.take_much() {
            self.let_go(much);
        }
    }

    /// Lets them go when all launches are done. An executable may have been launched in a stream of
    /// any context, whichever is at hand.
    pub(crate) fn let_go(&mut self, parts: Vec<Arc<HostPart>>) {
        let contexts: Vec<Context> = self.contexts.all().copied().collect();
        let table = self.table;
        self.helpers.run_in_turn(move || {
            for context in &contexts {
                // In one that is gone, or has failed, nothing is under way.
                let _ = call!(table, cuCtxSetCurrent(current(context)))
                    .and_then(|()| call!(table, cuCtxSynchronize()));
            }
            drop(parts);
        });
    }
}
