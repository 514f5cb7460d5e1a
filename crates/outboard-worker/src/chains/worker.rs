//! Launches of a session, which may be held back.

use outboard_abi::{CUfunction, CUresult, CUstream};
use outboard_wire::messages::{Launch, Message};

use super::{Chained, Effect, Kernel, Place};
use crate::launch::{Shape, launch_plain};
use crate::worker::Worker;

impl Chained for Worker {
    fn affect_chains(&mut self, effect: Effect) {
        // Without its context, no message changes anything.
        if self.enter().is_err() {
            return;
        }
        let function = |name| self.code.function(name).ok();
        self.chains.affect(self.table, self.contexts.here(), effect, function);
    }
}

impl Worker {
    /// Launches a kernel without attributes, now or with those that follow.
    pub(crate) fn launch_in_row(
        &mut self,
        place: Place,
        stream: CUstream,
        function: CUfunction,
        shape: Shape,
        params: &[u8],
    ) -> Result<(), CUresult> {
        let is_alone = !self.chains.more && self.chains.is_empty();
        if is_alone || !self.chains.may_hold(place) {
            return launch_plain(self.table, function, &shape, stream, params);
        }
        let kernel = Kernel { function: function as usize, shape, params: params.len() };
        if self.chains.hold((place, stream), kernel, params) {
            self.make_launches();
        }
        Ok(())
    }

    /// Makes the launches that are held back.
    #[inline(never)]
    pub(crate) fn make_launches(&mut self) {
        let Some((place, _)) = self.chains.held.place else { return };
        // A kernel's first launch may take memory.
        self.shown.change();
        let ctx = self.contexts.turn_to(place.ctx);
        let failed = match self.enter() {
            Ok(_) => self.chains.make(self.table),
            Err(error) => {
                let failed = vec![error; self.chains.held.kernels.len()];
                self.chains.held.clear();
                failed
            }
        };
        for error in failed {
            self.client.report_failed(place.ctx, Launch::OP, error);
        }
        self.contexts.turn_to(ctx);
    }
}
