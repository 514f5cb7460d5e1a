//! What arrays, textures and surfaces need of a device.

pub use outboard_wire::arrays::{ArrayDescriptor, Resource, Sampler, SparseProperties, View};

use super::{ContextId, ObjectId, Result};

/// The part of a [`Backend`](super::Backend) for arrays, textures and surfaces.
pub trait Arrays: Sized {
    /// Makes an array, and says how the device describes it. Call.
    fn array_create(&self, ctx: ContextId, id: ObjectId, descriptor: &ArrayDescriptor) -> Result<ArrayDescriptor>;
    /// Frees an array, or forgets the name of a level or plane. Call.
    fn array_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Names a plane of an array. Call.
    fn array_plane(&self, ctx: ContextId, array: ObjectId, plane: u32, id: ObjectId) -> Result<ArrayDescriptor>;
    /// Bytes and alignment of the memory that an array or mipmapped array needs. Call.
    fn array_memory_requirements(
        &self,
        ctx: ContextId,
        array: ObjectId,
        mipmapped: bool,
        device: u32,
    ) -> Result<(u64, u64)>;
    /// How a sparse array or mipmapped array is tiled. Call.
    fn array_sparse_properties(&self, ctx: ContextId, array: ObjectId, mipmapped: bool) -> Result<SparseProperties>;
    /// Makes a mipmapped array. Call.
    fn mipmap_create(&self, ctx: ContextId, id: ObjectId, descriptor: &ArrayDescriptor, levels: u32) -> Result<()>;
    /// Frees a mipmapped array and its levels. Call.
    fn mipmap_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()>;
    /// Names a level of a mipmapped array. Call.
    fn mipmap_level(&self, ctx: ContextId, mipmap: ObjectId, level: u32, id: ObjectId) -> Result<ArrayDescriptor>;

    /// Makes a texture object; its value is what kernels use. Call.
    fn texture_create(
        &self,
        ctx: ContextId,
        resource: &Resource,
        sampler: &Sampler,
        view: Option<&View>,
    ) -> Result<u64>;
    /// Ends a texture object. Posted.
    fn texture_destroy(&self, ctx: ContextId, texture: u64) -> Result<()>;
    /// Makes a surface object; its value is what kernels use. Call.
    fn surface_create(&self, ctx: ContextId, resource: &Resource) -> Result<u64>;
    /// Ends a surface object. Posted.
    fn surface_destroy(&self, ctx: ContextId, surface: u64) -> Result<()>;
}
