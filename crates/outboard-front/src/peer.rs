//! Access between devices.

use parking_lot::Mutex;

use crate::backend::ContextId;
use crate::process::Front;

/// Contexts of a process that may use the memory of others: who, and whose.
pub(crate) struct Peers {
    pub(crate) enabled: Mutex<Vec<(ContextId, ContextId)>>,
}

impl Peers {
    pub(crate) const fn new() -> Peers {
        Peers { enabled: Mutex::new(Vec::new()) }
    }
}

/// Forgets what a context that has ended was allowed, and what others were allowed with it.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.peers.enabled.lock().retain(|(who, whose)| *who != id && *whose != id);
}
