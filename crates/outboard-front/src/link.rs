//! The linker: inputs go to the device's side one by one, and what they become comes back as an image.

use std::sync::Arc;

use outboard_abi::{CUlinkState, CUresult};
use parking_lot::Mutex;

use crate::backend::{Backend, ContextId, JitLog, LinkInput, ObjectId, Result};
use crate::border::require;
use crate::context::{Context, Here};
use crate::handles::{Kind, Table};
use crate::jit::Places;
use crate::logs;
use crate::process::{Front, Process};

/// A link on its way.
pub(crate) struct Link {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) ctx: ContextId,
    /// Where logs go: the program keeps these places until the link is destroyed.
    pub(crate) places: Places,
    /// What has been linked: the program may read it until the link is destroyed.
    pub(crate) output: Mutex<Option<Box<[u8]>>>,
}

/// The links of a process that are on their way.
pub(crate) struct Links {
    pub(crate) table: Table<Link>,
}

impl Links {
    pub(crate) const fn new() -> Links {
        Links { table: Table::new(Kind::Link) }
    }
}

/// The kinds of input, `CU_JIT_INPUT_CUBIN` to `CU_JIT_INPUT_NVVM`.
const KINDS: u32 = 6;

impl Link {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
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
        if outcome.is_err() && !log.error.is_empty() {
            logs::because(log.error);
        }
        outcome
    }
}

pub(crate) fn resolve(front: &'static Front, state: CUlinkState) -> Result<(Here, Arc<Link>)> {
    crate::state::ready(front)?;
    let link = front.links.table.get(state as u64).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok((link.context.live()?, link))
}
