//! Notifications of a device: it has none to give, but programs may ask for them.

use std::sync::atomic::AtomicUsize;

use outboard_abi::CUdevice;
use parking_lot::Mutex;

/// The callbacks of a process for a device's notifications.
pub(crate) struct Notifications {
    /// Handles of callbacks, and their devices.
    pub(crate) waiting: Mutex<Vec<(usize, CUdevice)>>,
    /// Handles: multiples of 16, never used again.
    pub(crate) next: AtomicUsize,
}

impl Notifications {
    pub(crate) const fn new() -> Notifications {
        Notifications { waiting: Mutex::new(Vec::new()), next: AtomicUsize::new(0x1_0000) }
    }
}
