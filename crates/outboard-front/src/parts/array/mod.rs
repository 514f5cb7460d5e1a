//! Arrays and mipmapped arrays: their handles and parts.

use parking_lot::Mutex;

use crate::backend::{ArrayDescriptor, ContextId};
use crate::handles::{Kind, Table};
use crate::parts::context::Context;

/// An array: one of its own, a level of a mipmapped one, or a plane of another.
pub(crate) struct Array {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) id: ContextId,
    pub(crate) descriptor: ArrayDescriptor,
    /// The mipmapped array or array that it is part of, and which part.
    pub(crate) part_of: Option<(u64, u32)>,
}

/// A mipmapped array.
pub(crate) struct Mipmap {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) id: ContextId,
}

/// The arrays of a process.
pub(crate) struct Arrays {
    pub(crate) table: Table<Array>,
    pub(crate) mipmaps: Table<Mipmap>,
    /// Held while a level or plane gets its name, so that each has one.
    pub(crate) parts: Mutex<()>,
}

impl Arrays {
    pub(crate) const fn new() -> Arrays {
        Arrays {
            table: Table::new(Kind::Array),
            mipmaps: Table::new(Kind::MipmappedArray),
            parts: Mutex::new(()),
        }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.table.count() + self.mipmaps.count()
    }
}
