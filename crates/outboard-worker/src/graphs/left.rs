//! Functions and memory of the client that executables used before they were changed. Running
//! launches may still use them, so they are released later, and many at a time: a thread must wait
//! for the context to know that the launches are done.

use std::sync::Arc;

use super::host::HostPart;

/// So many parts, or parts with so many bytes of page-locked memory, are let go at once.
const PARTS: usize = 64;
const BYTES: u64 = 16 << 20;

/// What an executable has left behind.
#[derive(Default)]
pub(crate) struct Left {
    parts: Vec<Arc<HostPart>>,
    bytes: u64,
}

impl Left {
    pub(super) fn push(&mut self, part: Arc<HostPart>) {
        self.bytes += part.bytes();
        self.parts.push(part);
    }

    /// All of it, if it is much.
    pub(super) fn take_much(&mut self) -> Option<Vec<Arc<HostPart>>> {
        (self.parts.len() >= PARTS || self.bytes >= BYTES).then(|| std::mem::take(self).parts)
    }

    /// All of it.
    pub(crate) fn into_parts(self) -> Vec<Arc<HostPart>> {
        self.parts
    }
}
