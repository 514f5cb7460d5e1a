//! Memory and events of other processes.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::backend::DevicePtr;
use parking_lot::Mutex;

/// Memory of other processes that a process uses.
pub(crate) struct Imports {
    /// How often each address has been opened: opening again gives the same one.
    pub(crate) opened: LazyLock<Mutex<HashMap<DevicePtr, u32>>>,
}

impl Imports {
    pub(crate) const fn new() -> Imports {
        Imports { opened: LazyLock::new(Mutex::default) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.opened.lock().len()
    }
}
