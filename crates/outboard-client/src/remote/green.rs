//! Green contexts of a server.

use outboard_abi::CUstream_flags_enum;
use outboard_front::backend::{ContextId, GreenContexts as _, ObjectId, Result};
use outboard_wire::messages as msg;

use super::Remote;

impl Remote {
    pub(super) fn green_default_stream(
        &'static self,
        ctx: ContextId,
        green: ObjectId,
        stream: ObjectId,
    ) -> Result<()> {
        self.green_stream(ctx, green, stream, CUstream_flags_enum::CU_STREAM_NON_BLOCKING.0, 0)
    }

    pub(super) fn context_record(
        &self,
        ctx: ContextId,
        green: Option<ObjectId>,
        event: ObjectId,
    ) -> Result<()> {
        let session = self.session()?;
        session.progress().record_unnamed(|| {
            let green = green.unwrap_or(ObjectId::NONE);
            let seq = session.post_numbered(ctx, &msg::ContextRecord { green, event })?;
            session.progress().posted(seq);
            Ok(seq)
        })
    }
}
