//! Access between devices of a server.

use outboard_front::backend::{ContextId, Peers, Result};
use outboard_wire::messages as msg;

use super::Remote;

/// Questions about devices are not of a context.
const NONE: ContextId = ContextId(0);

impl Peers for Remote {
    fn peer_enable(&self, ctx: ContextId, peer: ContextId) -> Result<()> {
        self.call(ctx, &msg::PeerEnable { peer: peer.0 }, |_| ())
    }

    fn peer_disable(&self, ctx: ContextId, peer: ContextId) -> Result<()> {
        self.call(ctx, &msg::PeerDisable { peer: peer.0 }, |_| ())
    }

    fn peer_attribute(&self, from: u32, to: u32, attribute: u32) -> Result<i32> {
        self.call(NONE, &msg::PeerAttribute { src: from, dst: to, attribute }, |reply| reply.value)
    }

    fn peer_atomics(&self, from: u32, to: u32, operations: &[u32]) -> Result<Vec<u32>> {
        let message = msg::PeerAtomics { src: from, dst: to, operations: operations.to_vec() };
        self.call(NONE, &message, |reply| reply.capabilities)
    }
}
