//! Graphs of the software device: what the front has told of each, and the executables made of
//! them.

mod calls;
mod compile;
mod memory;
mod model;
mod program;
pub(crate) mod replay;

use std::collections::HashMap;
use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId};
use parking_lot::Mutex;

use crate::sched::Ticket;
use crate::table::Table;
pub(crate) use memory::GraphMemory;
use model::Model;
use program::{Program, Start};

/// All graphs and executables.
pub(crate) struct Tables {
    models: Table<ObjectId, Mutex<Model>>,
    execs: Table<ObjectId, Exec>,
    pub(crate) memory: GraphMemory,
    /// Values of conditional nodes, by their handles.
    starts: Mutex<HashMap<u64, Start>>,
}

/// An executable.
pub(crate) struct Exec {
    ctx: ContextId,
    /// What the next launch runs. Launches under way keep theirs.
    program: Mutex<Arc<Program>>,
    /// The latest launch: an executable never runs twice at the same time.
    latest: Mutex<Option<Ticket>>,
    auto_free: bool,
    /// The blocks that its launches allocate, or did before an update.
    blocks: Mutex<Vec<u64>>,
}

impl Tables {
    pub(crate) fn new() -> Tables {
        Tables {
            models: Table::new(CUresult::CUDA_ERROR_INVALID_VALUE),
            execs: Table::new(CUresult::CUDA_ERROR_INVALID_VALUE),
            memory: GraphMemory::default(),
            starts: Mutex::default(),
        }
    }

    /// Forgets the executables of a context that ends.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.execs.remove_where(|exec| exec.ctx == ctx);
        self.memory.forget(ctx);
    }
}
