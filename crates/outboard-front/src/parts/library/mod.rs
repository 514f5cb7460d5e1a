//! Libraries and kernels: images that belong to no context, loaded into each context that uses
//! them.

pub(crate) mod kernel;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use crate::backend::{ContextId, JitOptions};
use crate::handles::{Kind, Table};
use crate::image::Parts;
use crate::parts::library::kernel::Kernel;
use crate::parts::module::Module;

/// An image and the contexts it is loaded into.
pub(crate) struct Library {
    pub(crate) handle: u64,
    pub(crate) parts: Parts,
    pub(crate) options: JitOptions,
    pub(crate) unloaded: AtomicBool,
    /// Held over a load: two threads that launch from a library at once must not load it twice.
    pub(crate) modules: Mutex<HashMap<ContextId, Arc<Module>>>,
    pub(crate) kernels: Mutex<HashMap<String, u64>>,
}

/// The libraries of a process and their kernels.
pub(crate) struct Libraries {
    pub(crate) table: Table<Library>,
    pub(crate) kernels: Table<Kernel>,
}

impl Libraries {
    pub(crate) const fn new() -> Libraries {
        Libraries { table: Table::new(Kind::Library), kernels: Table::new(Kind::Kernel) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count() + self.kernels.count()
    }
}
