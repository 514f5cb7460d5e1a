//! Green contexts: shares of a device's multiprocessors, each with streams whose work keeps to it.
//! They belong to the primary context of their device, whose memory, modules and events are theirs
//! too.

use outboard_abi::{CUgreenCtx, CUresult};

use crate::backend::Result;
use crate::context::Context;
use crate::handles::Kind;
use crate::process::Front;
use crate::state;

pub(crate) use crate::parts::green::Green;

/// The context that a green one is.
pub(crate) fn named(front: &'static Front, green: CUgreenCtx) -> Result<&'static Context> {
    state::ready(front)?;
    let known = front.greens.table.get(green as u64).ok_or_else(|| {
        // Native drivers distinguish destroyed green contexts from values that never were one.
        if crate::handles::is(Kind::GreenContext, green as u64) {
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        } else {
            CUresult::CUDA_ERROR_INVALID_CONTEXT
        }
    })?;
    Ok(*known)
}
