//! What graphs need of a device.
//!
//! A graph is the front's: nodes, edges and parameters are asked for and changed without the device. What has changed is told
//! ([`Graphs::graph_edit`]) before an executable is made or updated from it, so that the device has the same graph in its own form.

use outboard_abi::CUresult;
use outboard_wire::graph::{AllocateNode, Edge, GraphEdit, NodeParams};

use super::{ContextId, ObjectId, Result, Stream};

/// What came of making an executable.
#[derive(Clone, Copy, Debug)]
pub struct Instantiated {
    /// What the call returns.
    pub status: CUresult,
    /// `CUgraphInstantiateResult`.
    pub result: u32,
    /// The node that is to blame, or 0.
    pub node: u64,
    /// What kernels launch the executable by, if it was made for that; else 0.
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

/// The part of a [`Backend`](super::Backend) for graphs. Nodes are named by the front, uniquely in the process.
pub trait Graphs: Sized {
    /// Names a graph, which is empty. The bodies of a conditional node are named by the edit that adds it. Posted.
    fn graph_create(&self, ctx: ContextId, graph: ObjectId) -> Result<()>;
    /// Changes a graph. What fails is reported by the next executable made of it. Posted.
    fn graph_edit(&self, ctx: ContextId, graph: ObjectId, edits: Vec<GraphEdit>) -> Result<()>;
    /// Adds a node that allocates, and gives its address. Call.
    fn graph_allocate(
        &self,
        ctx: ContextId,
        graph: ObjectId,
        node: u64,
        dependencies: Vec<Edge>,
        params: AllocateNode,
    ) -> Result<u64>;
    /// Makes a value for a conditional node of the graph: what kernels call it by. `value` is what each launch starts with, if `flags` say so. Call.
    fn graph_condition(&self, ctx: ContextId, graph: ObjectId, value: u32, flags: u32) -> Result<u64>;
    /// Forgets a graph and the graphs inside its nodes. Posted.
    fn graph_destroy(&self, ctx: ContextId, graph: ObjectId) -> Result<()>;

    /// Makes an executable; `flags` as of `CUgraphInstantiate_flags`, `stream` for the upload among them. Call.
    fn graph_instantiate(
        &self,
        ctx: ContextId,
        graph: ObjectId,
        exec: ObjectId,
        flags: u64,
        stream: Stream,
    ) -> Result<Instantiated>;
    /// Gives the nodes of an executable the parameters of a graph of the same shape. Call.
    fn graph_exec_update(&self, ctx: ContextId, exec: ObjectId, graph: ObjectId) -> Result<Updated>;
    /// Gives one node of an executable other parameters. Posted.
    fn graph_exec_set(&self, ctx: ContextId, exec: ObjectId, node: u64, params: NodeParams) -> Result<()>;
    /// Lets one node of an executable do something, or nothing. Posted.
    fn graph_exec_enable(&self, ctx: ContextId, exec: ObjectId, node: u64, enabled: bool) -> Result<()>;
    /// Takes what a launch needs to the device. Posted.
    fn graph_upload(&self, ctx: ContextId, exec: ObjectId, stream: Stream) -> Result<()>;
    /// Launches an executable. Posted.
    fn graph_launch(&self, ctx: ContextId, exec: ObjectId, stream: Stream) -> Result<()>;
    /// Forgets an executable; launches of it still run. Posted.
    fn graph_exec_destroy(&self, ctx: ContextId, exec: ObjectId) -> Result<()>;

    /// Gives back memory that graphs keep and do not use. `device` is the ordinal in [`Platform::devices`](outboard_wire::platform::Platform). Call.
    fn graph_memory_trim(&self, ctx: ContextId, device: u32) -> Result<()>;
    /// `cuDeviceGetGraphMemAttribute`. Call.
    fn graph_memory_get(&self, ctx: ContextId, device: u32, attribute: u32) -> Result<u64>;
    /// `cuDeviceSetGraphMemAttribute`. Call.
    fn graph_memory_set(&self, ctx: ContextId, device: u32, attribute: u32, value: u64) -> Result<()>;
}
