//! Types of the back end's methods for graphs.
//!
//! The front owns a graph: queries and changes of nodes, edges and parameters need no device.
//! Before an executable is made or updated from it, the front sends the changes
//! ([`graph_edit`](super::Graphs::graph_edit)), so that the device has the same graph in its own
//! form.

use outboard_abi::CUresult;

/// What came of making an executable.
#[derive(Clone, Copy, Debug)]
pub struct Instantiated {
    /// What the call returns.
    pub status: CUresult,
    /// `CUgraphInstantiateResult`.
    pub result: u32,
    /// The node that is to blame, or 0.
    pub node: u64,
    /// The handle by which kernels launch the executable, if it was made for that; else 0.
    pub handle: u64,
}

/// What came of updating an executable.
#[derive(Clone, Copy, Debug)]
pub struct Updated {
    /// What the call returns.
    pub status: CUresult,
    /// `CUgraphExecUpdateResult`.
    pub result: u32,
    /// The node that is to blame, or 0.
    pub node: u64,
    /// The node at the other end of the edge that is to blame, or 0.
    pub from: u64,
}
