//! What is said once in a session of the adapter that moves chunks itself.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Copy)]
pub(super) enum Fact {
    Writes,
    Reads,
    WritesFromDevice,
    ReadsToDevice,
    /// It takes no staging memory.
    NoStaging,
    /// It takes no device memory.
    NoDevice,
    /// It knows device memory, as the client is told.
    DeviceMemory,
}

/// Which [`Fact`]s have been told.
#[derive(Debug, Default)]
pub(super) struct Told([AtomicBool; Fact::DeviceMemory as usize + 1]);

impl Told {
    /// Whether nobody has told the fact yet; the caller does.
    pub(super) fn is_first(&self, fact: Fact) -> bool {
        !self.0[fact as usize].swap(true, Ordering::Relaxed)
    }
}
