//! User objects: reference-counted resources of the program that graphs keep alive.

use core::ffi::c_void;
use std::collections::HashMap;

pub(crate) struct Object {
    pub(crate) destroy: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
    /// References of the program and of graphs together.
    pub(crate) count: u64,
}

#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) all: HashMap<u64, Object>,
    pub(crate) next: u64,
    /// Destructors to be called when no lock is held.
    pub(crate) doomed: Vec<(unsafe extern "C" fn(*mut c_void), usize)>,
}
