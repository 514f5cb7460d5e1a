//! Functions of the program that a stream calls of a server.

use outboard_front::backend::{ContextId, HostCall, Result, Stream};

use super::{Remote, wire};

impl Remote {
    pub(super) fn host_call(&self, ctx: ContextId, stream: Stream, call: HostCall) -> Result<()> {
        self.session()?.host_call(ctx, wire(stream), call, None)
    }
}
