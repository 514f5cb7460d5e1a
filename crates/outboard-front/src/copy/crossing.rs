//! Copies with a side that another server has.

use super::plan::{Wait, mode};
use super::sides::{Owner, Resolved, Sides};
use crate::backend::{Backend, ContextId, CrossingCopy, Result};
use crate::context::primary;
use crate::process::Process;

impl Resolved {
    /// The context to which the memory of a side belongs: the copy's `own` for the host's.
    pub(crate) fn context<B: Backend>(
        &self,
        process: &'static Process<B>,
        own: ContextId,
    ) -> Result<ContextId> {
        Ok(match self.owner() {
            None => own,
            Some(Owner::Context(ctx)) => ctx,
            Some(Owner::Device(device)) => primary(process, device)?.live()?.id,
        })
    }
}

impl Sides {
    /// The copy as the back end takes it, from a context of the copy's `own`.
    pub(crate) fn crossing<B: Backend>(
        &self,
        process: &'static Process<B>,
        own: ContextId,
        wait: Wait,
    ) -> Result<CrossingCopy> {
        let place = |resolved: &Resolved| resolved.place(self.extent);
        Ok(CrossingCopy {
            dst: (self.dst.side, self.dst.context(process, own)?),
            src: (self.src.side, self.src.context(process, own)?),
            extent: self.extent,
            mode: mode(place(&self.dst), place(&self.src), wait),
        })
    }
}
