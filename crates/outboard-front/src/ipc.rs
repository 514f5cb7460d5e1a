//! Memory and events of other processes.

use crate::memory::{self, Kind};
use crate::process::Front;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
pub(crate) const FLAGS: u32 = 1;

/// Forgets what was opened at addresses that are gone with their context.
pub(crate) fn forget(front: &'static Front) {
    front.imports.opened.lock().retain(|address, _| {
        memory::find(front, address.unified()).is_some_and(|(_, _, a)| a.kind == Kind::Opened)
    });
}
