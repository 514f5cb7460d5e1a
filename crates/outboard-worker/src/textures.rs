//! Arrays, and the textures and surfaces made of them.

use std::collections::HashSet;

use outboard_abi::{CUarray, CUmipmappedArray, CUresult};
use outboard_wire::{ContextId, ObjectId};

use super::answer::Outcome;
use super::bounds::Kind;
use super::objects::{Handle, Named};

/// An array.
#[derive(Clone, Copy)]
pub(crate) struct Array {
    pub(crate) handle: Handle<outboard_abi::CUarray_st>,
    /// Whether it is one of its own, and not a level or plane of another.
    pub(crate) whole: bool,
}

/// Those of a session.
pub(crate) struct Textures {
    arrays: Named<Array>,
    mipmaps: Named<Handle<outboard_abi::CUmipmappedArray_st>>,
    /// Values of texture and surface objects, each with its context. Drivers follow such values
    /// without asking.
    textures: HashSet<(ContextId, u64)>,
    surfaces: HashSet<(ContextId, u64)>,
}

impl Textures {
    pub(crate) fn new() -> Textures {
        Textures {
            arrays: Named::new(Kind::Array),
            mipmaps: Named::new(Kind::Mipmap),
            textures: HashSet::new(),
            surfaces: HashSet::new(),
        }
    }

    /// Whether an array may have this name.
    pub(crate) fn check_new_array(&self, name: ObjectId) -> Outcome {
        self.arrays.check_new(name)
    }

    /// `whole`: it is one of its own, and not a level or plane of another.
    pub(crate) fn add_array(
        &mut self,
        ctx: ContextId,
        name: ObjectId,
        array: CUarray,
        whole: bool,
    ) {
        self.arrays.insert(name, ctx, Array { handle: Handle::new(array), whole });
    }

    pub(crate) fn array(
        &self,
        name: ObjectId,
    ) -> Result<Handle<outboard_abi::CUarray_st>, CUresult> {
        self.arrays.get(name).map(|array| array.handle)
    }

    pub(crate) fn remove_array(&mut self, name: ObjectId) -> Result<Array, CUresult> {
        self.arrays.remove(name)
    }

    /// Whether a mipmapped array may have this name.
    pub(crate) fn check_new_mipmap(&self, name: ObjectId) -> Outcome {
        self.mipmaps.check_new(name)
    }

    pub(crate) fn add_mipmap(&mut self, ctx: ContextId, name: ObjectId, mipmap: CUmipmappedArray) {
        self.mipmaps.insert(name, ctx, Handle::new(mipmap));
    }

    pub(crate) fn mipmap(&self, name: ObjectId) -> Result<CUmipmappedArray, CUresult> {
        self.mipmaps.get(name).map(|mipmap| mipmap.get())
    }

    pub(crate) fn remove_mipmap(
        &mut self,
        name: ObjectId,
    ) -> Result<Handle<outboard_abi::CUmipmappedArray_st>, CUresult> {
        self.mipmaps.remove(name)
    }

    /// Whether there may be one more texture.
    pub(crate) fn check_texture_room(&self) -> Outcome {
        Kind::Texture.room(self.textures.len())
    }

    pub(crate) fn add_texture(&mut self, ctx: ContextId, value: u64) {
        self.textures.insert((ctx, value));
    }

    /// Forgets a texture, if there is one of this value.
    pub(crate) fn remove_texture(&mut self, ctx: ContextId, value: u64) -> Outcome {
        known(self.textures.remove(&(ctx, value)))
    }

    /// Whether there may be one more surface.
    pub(crate) fn check_surface_room(&self) -> Outcome {
        Kind::Surface.room(self.surfaces.len())
    }

    pub(crate) fn add_surface(&mut self, ctx: ContextId, value: u64) {
        self.surfaces.insert((ctx, value));
    }

    /// Forgets a surface, if there is one of this value.
    pub(crate) fn remove_surface(&mut self, ctx: ContextId, value: u64) -> Outcome {
        known(self.surfaces.remove(&(ctx, value)))
    }

    /// Forgets what a context has.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.arrays.forget(ctx);
        self.mipmaps.forget(ctx);
        self.textures.retain(|(of, _)| *of != ctx);
        self.surfaces.retain(|(of, _)| *of != ctx);
    }
}

fn known(is_known: bool) -> Outcome {
    if is_known { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ContextId = ContextId(1);
    const TWO: ContextId = ContextId(2);
    const NAME: ObjectId = ObjectId(7);

    #[test]
    fn a_value_is_a_texture_of_the_context_that_made_it() {
        let mut textures = Textures::new();
        for ctx in [ONE, TWO] {
            textures.add_texture(ctx, 0x70);
        }
        assert!(textures.remove_surface(ONE, 0x70).is_err(), "it is no surface");
        assert!(textures.remove_texture(ONE, 0x71).is_err());
        assert_eq!(textures.remove_texture(ONE, 0x70), Ok(()));
        assert!(textures.remove_texture(ONE, 0x70).is_err());
        assert_eq!(textures.remove_texture(TWO, 0x70), Ok(()));
    }

    #[test]
    fn what_a_context_has_ends_with_it() {
        let mut textures = Textures::new();
        textures.add_array(ONE, NAME, 0x70 as CUarray, true);
        textures.add_mipmap(ONE, NAME, 0x80 as CUmipmappedArray);
        textures.add_texture(ONE, 1);
        textures.add_surface(ONE, 2);
        assert!(
            textures.check_new_array(NAME).is_err() && textures.check_new_mipmap(NAME).is_err()
        );
        textures.forget(TWO);
        assert_eq!(textures.array(NAME).map(Handle::get), Ok(0x70 as CUarray));
        assert_eq!(textures.mipmap(NAME), Ok(0x80 as CUmipmappedArray));
        textures.forget(ONE);
        assert!(textures.array(NAME).is_err() && textures.mipmap(NAME).is_err());
        assert!(
            textures.remove_texture(ONE, 1).is_err() && textures.remove_surface(ONE, 2).is_err()
        );
        assert_eq!(
            (textures.check_new_array(NAME), textures.check_new_mipmap(NAME)),
            (Ok(()), Ok(()))
        );
    }
}
