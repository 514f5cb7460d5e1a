//! Access between devices.

use crate::backend::ContextId;
use crate::process::Front;

/// Forgets what a context that has ended was allowed, and what others were allowed with it.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.peers.enabled.lock().retain(|(who, whose)| *who != id && *whose != id);
}
