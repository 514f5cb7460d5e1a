//! Fills of another server's memory.

use super::{Member, OwnStream, Several, Way};
use crate::backend::{ContextId, Fill, Result, StreamId};

impl<S: Member> Several<S> {
    pub(super) fn fill_across(
        &'static self,
        ctx: ContextId,
        stream: StreamId,
        of: ContextId,
        fill: Fill,
    ) -> Result<()> {
        let (own, other) = (self.server(ctx.server())?, self.server(of.server())?);
        let fill_there = move || {
            let stream = other.own_stream(of, OwnStream::Copies(Way::ToDevice))?;
            other.fill(of, fill, stream)?;
            other.stream_synchronize(of, stream)
        };
        let Some(fill_there) = self.in_order((own, ctx, stream), &[of], fill_there)? else {
            return Ok(());
        };
        own.stream_synchronize(ctx, stream)?;
        fill_there()
    }
}
