//! Texture and surface references, which kernels name in their image in place of getting an object
//! as a parameter.
//!
//! The device keeps a reference's settings; the front knows which array a handle means.

use std::sync::Arc;

use outboard_abi::CUresult;

use crate::backend::{ContextId, Result};
use crate::context::Here;
use crate::handles::Table;
use crate::process::Front;

pub(crate) use crate::parts::reference::{Bound, Reference};

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

pub(crate) fn resolve(
    front: &'static Front,
    table: &Table<Reference>,
    handle: u64,
) -> Result<(Here, Arc<Reference>)> {
    crate::state::ready(front)?;
    let reference = table.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    Ok((reference.context.live()?, reference))
}
