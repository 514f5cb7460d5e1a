//! The linker: inputs go to the device's side one by one, and what they become comes back as an
//! image.

use parking_lot::Mutex;

use crate::backend::{ContextId, ObjectId};
use crate::handles::{Kind, Table};
use crate::jit::Places;
use crate::parts::context::Context;

/// A link on its way.
pub(crate) struct Link {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) ctx: ContextId,
    /// Where logs go: the program keeps these places until the link is destroyed.
    pub(crate) places: Places,
    /// The linked image: the program may read it until the link is destroyed.
    pub(crate) output: Mutex<Option<Box<[u8]>>>,
}

/// The links of a process that are on their way.
pub(crate) struct Links {
    pub(crate) table: Table<Link>,
}

impl Links {
    pub(crate) const fn new() -> Links {
        Links { table: Table::new(Kind::Link) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count()
    }
}

impl Link {
    pub(crate) fn id(&self) -> ObjectId {
        ObjectId(self.handle)
    }
}
