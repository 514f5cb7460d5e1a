//! Primary contexts: one for each device, which several libraries retain.

use outboard_abi::CUresult;

use super::stack::top;
use super::{Context, Here, new};
use crate::backend::{Backend, Result};
use crate::process::{Front, Process};
use crate::state::ready;

/// Gives every visible device its primary context, not active yet.
pub(crate) fn init(front: &'static Front) {
    let Ok(state) = ready(front) else { return };
    front.contexts.primary.get_or_init(|| {
        (0..state.devices.len()).filter_map(|device| new(front, device, true, 0, 0)).collect()
    });
}

/// The primary context of a visible device.
pub(crate) fn primary(front: &'static Front, device: usize) -> Result<&'static Context> {
    front
        .contexts
        .primary
        .get()
        .and_then(|all| all.get(device))
        .copied()
        .ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
}

/// The current context or, without one, the first device's primary one, which becomes active for
/// it.
pub(crate) fn current_or_first<B: Backend>(process: &'static Process<B>) -> Result<Here> {
    if let Some(context) = top() {
        return context.live();
    }
    active(process, 0)
}

/// The primary context of a visible device, which becomes active if it is not.
pub(crate) fn active<B: Backend>(process: &'static Process<B>, device: usize) -> Result<Here> {
    let context = primary(process, device)?;
    let _users = context.users.lock();
    if !context.is_active() {
        context.start(process)?;
    }
    context.live()
}
