//! Memory pools.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::backend::ObjectId;
use crate::handles::{Kind, Table};

/// A pool.
pub(crate) struct Pool {
    pub(crate) handle: u64,
    /// The visible device's index.
    pub(crate) device: usize,
    pub(crate) origin: Origin,
    pub(crate) handle_types: u32,
}

/// The origin of a pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    Created,
    /// Another process's: memory of it can be mapped, but not allocated here.
    Imported,
}

/// The pools of a device.
#[derive(Default, Clone)]
pub(crate) struct OfDevice {
    pub(crate) default: Option<Arc<Pool>>,
    /// The current pool, which `cuMemAllocAsync` uses; none for the default one.
    pub(crate) current: Option<Arc<Pool>>,
}

/// The pools of a process.
pub(crate) struct Pools {
    pub(crate) table: Table<Pool>,
    /// By the visible devices' indices.
    pub(crate) devices: RwLock<Vec<OfDevice>>,
}

impl Pools {
    pub(crate) const fn new() -> Pools {
        Pools { table: Table::new(Kind::Pool), devices: RwLock::new(Vec::new()) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

impl Pool {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }
}
