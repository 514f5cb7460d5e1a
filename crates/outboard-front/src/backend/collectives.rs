//! What comes of calls of NCCL.

use outboard_abi::CUresult;

/// What NCCL made of a group of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOutcome {
    /// `ncclResult_t`.
    pub status: u32,
    /// The sentence that belongs to a failure.
    pub failure: String,
    /// What each call gives, as [`CommCall`](outboard_wire::collectives::CommCall) says; 0 of those
    /// that give nothing.
    pub values: Vec<u64>,
}

/// Is told what came of a group, or that the server was lost.
pub type CollectivesDone = Box<dyn FnOnce(Result<GroupOutcome, CUresult>) + Send>;
