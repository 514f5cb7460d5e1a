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

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.enabled.lock().len()
    }
}
