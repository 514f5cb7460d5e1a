//! What texture and surface references need of a device.

use outboard_abi::CUresult;
pub use outboard_wire::references::ReferenceSetting;

use super::{ContextId, ObjectId, Result};

/// The part of a [`Backend`](super::Backend) for texture and surface references. All are calls.
pub trait References: Sized {
    /// Makes a texture reference of no module.
    fn reference_create(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Ends a texture reference of no module.
    fn reference_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Names a texture reference of a module. None is found on devices whose kernels cannot use them.
    fn reference_find(&self, _ctx: ContextId, _module: ObjectId, _name: &str, _id: ObjectId) -> Result<()> {
        Err(CUresult::CUDA_ERROR_NOT_FOUND)
    }
    /// Sets one thing, and gives the offset of the first element from what memory is bound.
    fn reference_set(&self, ctx: ContextId, id: ObjectId, setting: &ReferenceSetting) -> Result<u64>;
    /// What is set, in the way of `like`, whose values do not matter but for the dimension; an address comes as `Memory`.
    fn reference_get(&self, ctx: ContextId, id: ObjectId, like: &ReferenceSetting) -> Result<ReferenceSetting>;
    /// Names a surface reference of a module, likewise.
    fn surface_reference_find(&self, _ctx: ContextId, _module: ObjectId, _name: &str, _id: ObjectId) -> Result<()> {
        Err(CUresult::CUDA_ERROR_NOT_FOUND)
    }
    /// Binds a surface reference to an array.
    fn surface_reference_set(&self, _ctx: ContextId, _id: ObjectId, _array: ObjectId, _flags: u32) -> Result<()> {
        Err(CUresult::CUDA_ERROR_NOT_SUPPORTED)
    }
}
