//! Executables: making, updating, launching.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use outboard_abi::{CUgraphExec, CUgraphInstantiate_flags_enum as Flags};
use parking_lot::{Mutex, RwLock};

use super::memory::Allocates;
use super::model::INVALID;
use crate::backend::Result;
use crate::process::Front;

/// An executable.
pub(crate) struct Exec {
    /// The backend's name for it.
    pub(crate) id: u64,
    pub(crate) flags: u64,
    /// The graph it was made of, whose nodes name its own.
    pub(crate) graph: u64,
    /// Nodes that do nothing for now.
    pub(crate) disabled: Mutex<HashSet<u64>>,
    /// What it holds on to.
    pub(crate) objects: Vec<(u64, u32)>,
    /// What launches allocate.
    pub(crate) memory: Allocates,
}

/// The executables of a process, by handle.
pub(super) type Execs = LazyLock<RwLock<HashMap<u64, Arc<Exec>>>>;

/// What `cuGraphInstantiate*` takes.
pub(crate) const FLAGS: u64 = (Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0
    | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0
    | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH.0
    | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0) as u64;

/// The executable of a handle.
pub(crate) fn resolve(front: &'static Front, exec: CUgraphExec) -> Result<Arc<Exec>> {
    crate::state::ready(front)?;
    front.graphs.execs.read().get(&(exec as u64)).cloned().ok_or(INVALID)
}
