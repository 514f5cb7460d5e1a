//! Nodes that run what a server has captured.

use outboard_abi::CUresult;
use outboard_wire::graph::{Edge, NodeParams};

use super::state::join;
use crate::backend::{ContextId, ObjectId, Result, StreamId};
use crate::graph::model::{Given, world};
use crate::process::Front;

/// The capture in which a stream takes part.
pub(crate) fn of(front: &'static Front, stream: StreamId) -> Result<Option<u64>> {
    match world(front).captures.of(stream) {
        None => Ok(None),
        Some((_, capture)) if capture.invalidated => {
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        }
        Some((id, _)) => Ok(Some(id)),
    }
}

/// A node that is to run a captured graph.
pub(crate) struct CapturedNode<'a> {
    pub(crate) capture: u64,
    pub(crate) ctx: ContextId,
    /// The graph's name on the context's server.
    pub(crate) captured: ObjectId,
    /// The streams whose next node it is.
    pub(crate) streams: &'a [StreamId],
    /// Nodes behind which it must be, by the graphs that they are of.
    pub(crate) behind: Vec<(ObjectId, u64)>,
}

impl CapturedNode<'_> {
    /// Adds it; gives the capture's graph, and the node.
    pub(crate) fn add(&self, front: &'static Front) -> Result<(ObjectId, u64)> {
        let mut world = world(front);
        let graph = match world.captures.get(self.capture) {
            Some(capture) if !capture.invalidated => capture.graph,
            _ => return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
        };
        let mut behind = Vec::new();
        for stream in self.streams {
            if let Some(member) = world.captures.members.get(stream) {
                join(&mut behind, &member.behind);
            }
        }
        for (of, node) in &self.behind {
            if *of == graph && world.node(*node).is_ok_and(|node| node.graph == graph) {
                join(&mut behind, &[Edge { node: *node, ports: [0; 3] }]);
            }
        }
        let params = NodeParams::Captured { ctx: self.ctx, graph: self.captured };
        let node = world.add(graph, &behind, params, Given::Nothing)?;
        for stream in self.streams {
            super::node::moved(&mut world, *stream, node);
        }
        Ok((graph, node))
    }
}
