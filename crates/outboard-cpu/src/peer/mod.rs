//! Access between software devices: each has memory of its own, and sees another's as it sees
//! memory of the host.

mod calls;

use std::collections::HashMap;
use std::sync::Arc;

use outboard_front::backend::ContextId;
use outboard_simt::Engine;
use parking_lot::Mutex;

/// Which devices see which, and how often that has been asked for.
#[derive(Default)]
pub(crate) struct Windows {
    open: Mutex<HashMap<(u32, u32), u32>>,
    asked: Mutex<Vec<Asked>>,
}

/// A context that has asked for another's memory, and both their devices: either may end at any
/// time.
struct Asked {
    who: (ContextId, u32),
    whose: (ContextId, u32),
}

impl Windows {
    /// Kernels of device `from` see the memory of device `to`.
    pub(crate) fn open(&self, engines: &[Arc<Engine>], from: u32, to: u32) {
        let mut open = self.open.lock();
        let count = open.entry((from, to)).or_default();
        *count += 1;
        if *count == 1 && from != to {
            let (base, bytes) = engines[to as usize].memory().device_part();
            // SAFETY: an engine's arena stays mapped as long as the process lives.
            unsafe { engines[from as usize].memory().register_host(base, bytes) };
        }
    }

    /// Undoes one [`Windows::open`]; nothing running uses it.
    pub(crate) fn close(&self, engines: &[Arc<Engine>], from: u32, to: u32) {
        let mut open = self.open.lock();
        let Some(count) = open.get_mut(&(from, to)) else { return };
        *count -= 1;
        if *count == 0 {
            open.remove(&(from, to));
            if from != to {
                engines[from as usize]
                    .memory()
                    .unregister_host(engines[to as usize].memory().device_part().0);
            }
        }
    }
}
