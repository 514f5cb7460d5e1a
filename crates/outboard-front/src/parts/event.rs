//! Events.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::{ContextId, ObjectId};
use crate::handles::{Kind, Table};
use crate::parts::context::Context;

pub(crate) struct Object {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) ctx: ContextId,
    pub(crate) flags: u32,
    /// Last recorded in a stream that captured: it stands for nodes.
    pub(crate) captured: AtomicBool,
    /// Recorded at any time, or given to what may record it.
    pub(crate) recorded: AtomicBool,
}

impl Object {
    pub(crate) fn is_captured(&self) -> bool {
        self.captured.load(Ordering::Relaxed)
    }

    /// Whether there is anything that a stream could wait for.
    pub(crate) fn may_be_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }

    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }
}

/// The events of a process.
pub(crate) struct Events {
    pub(crate) table: Table<Object>,
}

impl Events {
    pub(crate) const fn new() -> Events {
        Events { table: Table::new(Kind::Event) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}
