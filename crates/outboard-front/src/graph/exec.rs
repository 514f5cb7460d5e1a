//! Executables: making, updating, launching.

use std::sync::Arc;

use outboard_abi::{
    CUgraphExec, CUgraphInstantiate_flags_enum as Flags, CUgraphInstantiateResult_enum as Outcome,
    CUresult,
};

use super::model::INVALID;
use crate::backend::{Instantiated, Result};
use crate::process::Front;

pub(crate) use crate::parts::graph::exec::{Exec, Made, Whole};

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

/// Why an executable could not be made.
pub(crate) struct Failure {
    pub(crate) error: CUresult,
    /// `CUgraphInstantiateResult`
    pub(crate) result: u32,
    /// The node that is to blame, or 0.
    pub(crate) node: u64,
}

impl From<CUresult> for Failure {
    fn from(error: CUresult) -> Failure {
        Failure { error, result: Outcome::CUDA_GRAPH_INSTANTIATE_ERROR.0, node: 0 }
    }
}

impl Failure {
    /// What a server says has become of a graph.
    pub(crate) fn check(made: Instantiated) -> std::result::Result<Instantiated, Failure> {
        let Instantiated { status, result, node, .. } = made;
        if status == CUresult::CUDA_SUCCESS {
            return Ok(made);
        }
        Err(Failure { error: status, result, node })
    }
}
