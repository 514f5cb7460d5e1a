//! Managed memory: allocations, and what a program says about where it wants them.

use core::ffi::c_int;
use std::collections::BTreeMap;

use crate::backend::UnifiedPtr;
use parking_lot::Mutex;

/// Where a program wants a piece of memory. Places are device ordinals, [`CPU`] or [`NOWHERE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: c_int,
    pub(crate) accessed_by: Vec<c_int>,
    pub(crate) prefetched: c_int,
}

/// What a process wishes of its managed memory.
pub(crate) struct Managed {
    /// By allocation and piece; pieces about which nothing was said are not there.
    pub(crate) wishes: Mutex<BTreeMap<UnifiedPtr, Wishes>>,
}

impl Managed {
    pub(crate) const fn new() -> Managed {
        Managed { wishes: Mutex::new(BTreeMap::new()) }
    }
}
