//! Green contexts: shares of a device's multiprocessors, each with streams whose work keeps to it.
//! They belong to the primary context of their

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use crate::backend::{ContextId, ObjectId};
use crate::handles::{Kind, Table};
use crate::parts::context::Context;

/// A green context. The [`Context`] that `cuCtxFromGreenCtx` gives holds it.
pub(crate) struct Green {
    pub(crate) handle: u64,
    /// The primary context's name when it was made: with that context it ends.
    pub(crate) ctx: ContextId,
    /// The context of the device to which it belongs.
    pub(crate) primary: &'static Context,
    pub(crate) closed: AtomicBool,
    /// The stream used as the default stream, made at its first use.
    pub(crate) default_stream: Mutex<Option<u64>>,
}

impl Green {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }
}

/// The green contexts of a process.
pub(crate) struct Greens {
    /// By their own handles; each is a context too.
    pub(crate) table: Table<&'static Context>,
    /// Descriptors. CUDA has no call that ends one.
    pub(crate) descriptors: Table<()>,
}

impl Greens {
    pub(crate) const fn new() -> Greens {
        Greens { table: Table::new(Kind::GreenContext), descriptors: Table::new(Kind::Descriptor) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count() + self.descriptors.count()
    }
}
