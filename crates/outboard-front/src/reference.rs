//! Texture and surface references, which kernels name in their image in place of getting an object as a parameter.
//!
//! What a reference is set to is the device's to know and to tell; which array a handle stands for is known here.

use std::sync::Arc;

use outboard_abi::CUresult;
use parking_lot::Mutex;

use crate::backend::{ContextId, Result};
use crate::context::{Context, Here};
use crate::handles::{Kind, Table};
use crate::process::Front;

/// What a reference reads or writes.
#[derive(Clone, Copy)]
pub(crate) enum Bound {
    Nothing,
    Array(u64),
    Mipmap(u64),
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
}

/// Forgets the references of a context that has ended.
pub(crate) fn forget(front: &'static Front, id: ContextId) {
    front.references.textures.remove_where(|reference| reference.id == id);
    front.references.surfaces.remove_where(|reference| reference.id == id);
}

/// Forgets the references of a module that is unloaded.
pub(crate) fn forget_module(front: &'static Front, module: u64) {
    let of = |reference: &Reference| reference.of.as_ref().is_some_and(|(of, _)| *of == module);
    front.references.textures.remove_where(of);
    front.references.surfaces.remove_where(of);
}

pub(crate) fn resolve(front: &'static Front, table: &Table<Reference>, handle: u64) -> Result<(Here, Arc<Reference>)> {
    crate::state::ready(front)?;
    let reference = table.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok((reference.context.live()?, reference))
}
