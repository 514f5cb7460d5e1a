//! Access between devices.

use parking_lot::Mutex;

use crate::backend::ContextId;

/// Contexts of a process that may use the memory of others: who, and whose.
pub(crate) struct Peers {
    pub(crate) enabled: Mutex<Vec<(ContextId, ContextId)>>,
}

impl Peers {
    pub(crate) const fn new() -> Peers {
        Peers { enabled: Mutex::new(Vec::new()) }
    }
}
