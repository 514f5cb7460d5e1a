//! Modules: images loaded into a context.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use crate::backend::{ContextId, DevicePtr, ObjectId, Result};
use crate::handles::{Kind, Table};
use crate::parts::context::{Context, Here};
use crate::parts::function::Function;

/// An image loaded into a context.
pub(crate) struct Module {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) ctx: ContextId,
    pub(crate) functions: Mutex<HashMap<String, Arc<Function>>>,
    pub(crate) names: Mutex<Option<Arc<[String]>>>,
    /// Addresses of its variables that the map of allocations has.
    pub(crate) globals: Mutex<Vec<DevicePtr>>,
}

/// The modules of a process.
pub(crate) struct Modules {
    pub(crate) table: Table<Module>,
    /// Whether the program's user has been told that a device cannot run an image.
    pub(crate) said: AtomicBool,
}

impl Modules {
    pub(crate) const fn new() -> Modules {
        Modules { table: Table::new(Kind::Module), said: AtomicBool::new(false) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

impl Module {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }

    pub(crate) fn live(self: &Arc<Module>) -> Result<Here> {
        self.context.live()
    }
}
