//! Copies with a side that another server has.

use super::plan::{Wait, mode};
use super::sides::{Resolved, Sides};
use crate::backend::{Backend, ContextId, CrossingCopy, Result};
use crate::process::Process;

impl Sides {
    /// The copy as the back end takes it, from a context of the copy's `own`.
    pub(crate) fn crossing<B: Backend>(
        &self,
        process: &'static Process<B>,
        own: ContextId,
        wait: Wait,
    ) -> Result<CrossingCopy> {
        let context = |side: &Resolved| Ok(side.context(process)?.unwrap_or(own));
        let place = |resolved: &Resolved| resolved.place(self.extent);
        Ok(CrossingCopy {
            dst: (self.dst.side, context(&self.dst)?),
            src: (self.src.side, context(&self.src)?),
            extent: self.extent,
            mode: mode(place(&self.dst), place(&self.src), wait),
        })
    }
}
