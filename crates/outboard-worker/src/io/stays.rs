//! What keeps the driver of a session from being suspended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What does so in a session.
#[derive(Debug, Default)]
pub(super) struct Stays {
    communicators: AtomicBool,
    /// How many [`Stay`]s there are.
    registered: Arc<AtomicUsize>,
}

/// An adapter knows memory of a device, or is asked to: it would go on to use the memory.
#[derive(Debug)]
pub(crate) struct Stay(Arc<AtomicUsize>);

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Stays {
    /// Whether the session has communicators.
    pub(super) fn has_communicators(&self, any: bool) {
        self.communicators.store(any, Ordering::Release);
    }

    /// Keeps the driver from being suspended while what this returns is there.
    pub(super) fn stay(&self) -> Stay {
        self.registered.fetch_add(1, Ordering::AcqRel);
        Stay(Arc::clone(&self.registered))
    }

    /// Why the driver cannot be suspended, if it cannot.
    pub(super) fn why(&self) -> Option<&'static str> {
        if self.communicators.load(Ordering::Acquire) {
            Some("it has communicators of NCCL, whose other ranks would wait for it")
        } else if self.registered.load(Ordering::Acquire) > 0 {
            Some("an RDMA adapter knows memory of its devices")
        } else {
            None
        }
    }
}
