//! Memory and events of other processes.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::memory::{self, Kind};
use crate::process::Front;

/// Memory of other processes that a process uses.
pub(crate) struct Imports {
    /// How often each address has been opened: opening again gives the same one.
    pub(crate) opened: LazyLock<Mutex<HashMap<u64, u32>>>,
}

impl Imports {
    pub(crate) const fn new() -> Imports {
        Imports { opened: LazyLock::new(Mutex::default) }
    }
}

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
pub(crate) const FLAGS: u32 = 1;

/// Forgets what was opened at addresses that are gone with their context.
pub(crate) fn forget(front: &'static Front) {
    front
        .imports
        .opened
        .lock()
        .retain(|address, _| memory::find(front, *address).is_some_and(|(_, _, a)| a.kind == Kind::Opened));
}
