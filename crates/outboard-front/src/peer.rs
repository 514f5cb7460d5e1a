//! Access between devices.

use crate::backend::ContextId;
use crate::process::Front;

/// Forgets the peer access of an ended context, in both directions.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.peers.enabled.lock().retain(|(who, whose)| *who != id && *whose != id);
}
