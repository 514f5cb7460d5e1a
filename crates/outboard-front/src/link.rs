//! The linker: inputs go to the device's side one by one, and what they become comes back as an
//! image.

use std::sync::Arc;

use outboard_abi::{CUlinkState, CUresult};

use crate::backend::{Backend, JitLog, LinkInput, Result};
use crate::border::require;
use crate::context::Here;
use crate::dropped;
use crate::logs;
use crate::process::{Front, Process};

pub(crate) use crate::parts::link::Link;

/// The kinds of input, `CU_JIT_INPUT_CUBIN` to `CU_JIT_INPUT_NVVM`.
const KINDS: u32 = 6;

impl Link {
    /// Who links: a program, which no runtime does.
    pub(crate) fn caller(&self) -> dropped::Caller {
        dropped::Caller { is_runtime: false, has_log: self.places.has_error_log() }
    }

    pub(crate) fn add<B: Backend>(
        &self,
        process: &'static Process<B>,
        here: &Here,
        input: LinkInput<'_>,
    ) -> Result<()> {
        require(input.kind < KINDS)?;
        let mut log = JitLog::default();
        let outcome = here.note(process.backend.link_add(here.id, self.id(), input, &mut log));
        // SAFETY: the link lives, and the program keeps the places as long.
        unsafe { self.places.write(&log) };
        if let Err(error) = outcome {
            dropped::note(process, here, error, &log.error, &self.caller());
            if !log.error.is_empty() {
                logs::because(log.error);
            }
        }
        outcome
    }
}

pub(crate) fn resolve(front: &'static Front, state: CUlinkState) -> Result<(Here, Arc<Link>)> {
    crate::state::ready(front)?;
    let link = front.links.table.get(state as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok((link.context.live()?, link))
}
