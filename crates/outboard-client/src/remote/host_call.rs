//! Functions of the program that a stream calls of a server.

use outboard_front::backend::{ContextId, HostCall, Result, StreamId};

use super::Remote;

impl Remote {
    pub(super) fn host_call(&self, ctx: ContextId, stream: StreamId, call: HostCall) -> Result<()> {
        self.session()?.host_call(ctx, stream, call, None)
    }
}
