//! Executables: making, updating, launching.

use std::sync::Arc;

use outboard_abi::{CUgraphExec, CUgraphInstantiate_flags_enum as Flags};

use super::model::INVALID;
use crate::backend::Result;
use crate::process::Front;

pub(crate) use crate::parts::graph::exec::Exec;

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
