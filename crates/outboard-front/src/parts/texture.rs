//! Texture and surface objects. The device chooses their values; the front keeps their
//! descriptions.

use std::collections::HashMap;

use outboard_abi::{CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC};
use parking_lot::RwLock;

use crate::backend::ContextId;

/// The descriptors of a texture object.
pub(crate) struct Texture {
    pub(crate) resource: Plain<CUDA_RESOURCE_DESC>,
    pub(crate) sampler: CUDA_TEXTURE_DESC,
    pub(crate) view: Option<CUDA_RESOURCE_VIEW_DESC>,
}

/// A structure of the program, kept to be given back. Its handles and addresses are numbers to us.
pub(crate) struct Plain<T>(pub(crate) T);

// SAFETY: only ever copied back to the program; nothing here follows its pointers.
unsafe impl<T> Send for Plain<T> {}

// SAFETY: as above.
unsafe impl<T> Sync for Plain<T> {}

/// Objects by their values, which are the device's and so differ only within a context.
pub(crate) type Objects<T> = RwLock<Option<HashMap<(ContextId, u64), T>>>;

/// The texture and surface objects of a process.
pub(crate) struct Textures {
    pub(crate) textures: Objects<Texture>,
    pub(crate) surfaces: Objects<Plain<CUDA_RESOURCE_DESC>>,
}

impl Textures {
    pub(crate) const fn new() -> Textures {
        Textures { textures: RwLock::new(None), surfaces: RwLock::new(None) }
    }

    /// For tests: how many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let textures = self.textures.read().as_ref().map_or(0, std::collections::HashMap::len);
        textures + self.surfaces.read().as_ref().map_or(0, std::collections::HashMap::len)
    }
}
