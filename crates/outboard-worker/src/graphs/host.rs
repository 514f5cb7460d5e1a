//! Functions that the driver calls while it replays a graph: they fetch bytes of the client's
//! memory, send it bytes, or have it run a host callback.

use core::ffi::c_void;
use std::sync::Arc;

use outboard_abi::CUDA_HOST_NODE_PARAMS;
use outboard_driver::{Table, call};
use outboard_wire::request::{GRAPH_CALL, GRAPH_PIECE, GRAPH_READ, GRAPH_WRITE};
use outboard_wire::{ContextId, HostPtr, Writer};

use crate::budget::Pinned;
use crate::client::Reporter;
use crate::output::Printed;

/// Most page-locked memory for one copy of a graph.
pub(super) const MOST_PINNED: u64 = 4 << 30;

/// Page-locked memory that a copy of a graph goes through.
pub(super) struct Memory {
    pub(super) table: &'static Table,
    pub(super) address: usize,
    pub(super) bytes: u64,
    pub(super) _pinned: Pinned,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // With its context it may have gone already.
        let _ = call!(self.table, cuMemFreeHost(self.address as *mut c_void));
    }
}

impl Memory {
    pub(super) fn address(&self) -> HostPtr {
        HostPtr(self.address as u64)
    }
}

/// The task.
pub(super) enum Task {
    /// Nothing.
    Nothing,
    /// Call a function of the program.
    Call(u64),
    /// Fetch the bytes of the client's first box, if there is one, and bring them to its second, if
    /// there is one.
    Exchange { memory: Arc<Memory>, read: Option<u64>, write: Option<u64> },
}

/// One such function.
pub(crate) struct HostPart {
    pub(super) ctx: ContextId,
    pub(super) task: Task,
    pub(super) reporter: Reporter,
}

impl HostPart {
    /// What a host node of the driver's is made with. The part must live as long as the node can
    /// run.
    pub(super) fn params(self: &Arc<HostPart>) -> CUDA_HOST_NODE_PARAMS {
        CUDA_HOST_NODE_PARAMS { fn_: Some(run), userData: Arc::as_ptr(self).cast_mut().cast() }
    }

    pub(super) fn has_memory(&self) -> bool {
        matches!(self.task, Task::Exchange { .. })
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.task, Task::Nothing)
    }

    /// Bytes of page-locked memory that go with it.
    pub(super) fn bytes(&self) -> u64 {
        if let Task::Exchange { memory, .. } = &self.task { memory.bytes } else { 0 }
    }

    fn run(&self) {
        // What the device did before must be there for the client.
        self.reporter.report(Printed::Perhaps);
        match &self.task {
            Task::Nothing => {}
            Task::Call(number) => {
                let mut body = Writer::new();
                body.u64(*number);
                if let Ok(asked) =
                    self.reporter.replier().request(GRAPH_CALL, self.ctx, body.as_slice(), 0)
                {
                    let _ = asked.wait();
                }
            }
            Task::Exchange { memory, read, write } => {
                // A client that does not answer as it should gets what was there: the device
                // continues.
                let fetched = read.is_none_or(|number| self.fetch(memory, number).is_some());
                if let Some(number) = write
                    && fetched
                {
                    self.deliver(memory, *number);
                }
            }
        }
    }

    /// Fills the memory with the bytes of a box.
    fn fetch(&self, memory: &Memory, number: u64) -> Option<()> {
        for (at, len) in pieces(memory.bytes) {
            let mut body = Writer::new();
            body.u64(number);
            body.u64(at);
            body.u32(len as u32);
            let asked =
                self.reporter.replier().request(GRAPH_READ, self.ctx, body.as_slice(), len).ok()?;
            let bytes = asked.wait().ok().filter(|bytes| bytes.len() == len)?;
            // SAFETY: the piece lies in the memory, which only the node at hand uses while its
            // graph stands here.
            unsafe {
                let to = (memory.address as *mut u8).add(at as usize);
                core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
            }
        }
        Some(())
    }

    /// Brings the bytes to a box.
    fn deliver(&self, memory: &Memory, number: u64) {
        for (at, len) in pieces(memory.bytes) {
            let mut body = Writer::with_capacity(len + 16);
            body.u64(number);
            body.u64(at);
            // SAFETY: the piece lies in the memory, which only the node at hand uses while its
            // graph stands here.
            body.fixed(unsafe {
                std::slice::from_raw_parts((memory.address as *const u8).add(at as usize), len)
            });
            let Ok(asked) =
                self.reporter.replier().request(GRAPH_WRITE, self.ctx, body.as_slice(), 0)
            else {
                return;
            };
            if asked.wait().is_err() {
                return;
            }
        }
    }
}

/// Offsets and lengths of what travels in one request each.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes.div_ceil(GRAPH_PIECE as u64)).map(move |index| {
        let at = index * GRAPH_PIECE as u64;
        (at, (bytes - at).min(GRAPH_PIECE as u64) as usize)
    })
}

/// Called by the driver, on a thread of its own, each time a launch comes to the node.
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: a part that its graph and its executables keep while the node can run.
    let part = unsafe { &*data.cast_const().cast::<HostPart>() };
    part.run();
}
