//! Texture and surface references, which kernels name in their image in place of getting an object
//! as a parameter.

use parking_lot::Mutex;

use crate::backend::{ContextId, ObjectId};
use crate::handles::{Kind, Table};
use crate::parts::context::Context;

/// What a reference reads or writes.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    Nothing,
    Array(ObjectId),
    Mipmap(ObjectId),
    Memory,
}

/// A texture or surface reference.
pub(crate) struct Reference {
    pub(crate) handle: u64,
    pub(crate) context: &'static Context,
    pub(crate) id: ContextId,
    /// The module it is of, and its name there; nothing for one that the program made.
    pub(crate) of: Option<(u64, String)>,
    pub(crate) bound: Mutex<Bound>,
}

/// The texture and surface references of a process.
pub(crate) struct References {
    pub(crate) textures: Table<Reference>,
    pub(crate) surfaces: Table<Reference>,
    /// Held while a module's reference gets its handle, so that each has one.
    pub(crate) naming: Mutex<()>,
}

impl References {
    pub(crate) const fn new() -> References {
        References {
            textures: Table::new(Kind::TextureReference),
            surfaces: Table::new(Kind::SurfaceReference),
            naming: Mutex::new(()),
        }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.textures.count() + self.surfaces.count()
    }
}
