//! Arrays, textures and surfaces.

use outboard_front::backend::{
    ArrayDescriptor, Arrays, ContextId, ObjectId, Resource, Result, Sampler, SparseProperties, View,
};
use outboard_wire::messages as msg;

use super::Remote;

impl Arrays for Remote {
    fn array_create(&self, ctx: ContextId, id: ObjectId, descriptor: &ArrayDescriptor) -> Result<ArrayDescriptor> {
        self.call(ctx, &msg::ArrayCreate { array: id.0, descriptor: *descriptor }, |reply| reply.descriptor)
    }

    fn array_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::ArrayDestroy { array: id.0 }, |_| ())
    }

    fn array_plane(&self, ctx: ContextId, array: ObjectId, plane: u32, id: ObjectId) -> Result<ArrayDescriptor> {
        self.call(ctx, &msg::ArrayPlane { array: array.0, plane, name: id.0 }, |reply| reply.descriptor)
    }

    fn array_memory_requirements(
        &self,
        ctx: ContextId,
        array: ObjectId,
        mipmapped: bool,
        device: u32,
    ) -> Result<(u64, u64)> {
        let message = msg::ArrayMemoryRequirements { array: array.0, mipmapped, device };
        self.call(ctx, &message, |reply| (reply.bytes, reply.alignment))
    }

    fn array_sparse_properties(&self, ctx: ContextId, array: ObjectId, mipmapped: bool) -> Result<SparseProperties> {
        self.call(ctx, &msg::ArraySparseProperties { array: array.0, mipmapped }, |reply| reply.properties)
    }

    fn mipmap_create(&self, ctx: ContextId, id: ObjectId, descriptor: &ArrayDescriptor, levels: u32) -> Result<()> {
        self.call(ctx, &msg::MipmapCreate { mipmap: id.0, descriptor: *descriptor, levels }, |_| ())
    }

    fn mipmap_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.call(ctx, &msg::MipmapDestroy { mipmap: id.0 }, |_| ())
    }

    fn mipmap_level(&self, ctx: ContextId, mipmap: ObjectId, level: u32, id: ObjectId) -> Result<ArrayDescriptor> {
        self.call(ctx, &msg::MipmapLevel { mipmap: mipmap.0, level, name: id.0 }, |reply| reply.descriptor)
    }

    fn texture_create(
        &self,
        ctx: ContextId,
        resource: &Resource,
        sampler: &Sampler,
        view: Option<&View>,
    ) -> Result<u64> {
        let view = view.copied().into_iter().collect();
        self.call(ctx, &msg::TextureCreate { resource: *resource, sampler: *sampler, view }, |reply| reply.value)
    }

    fn texture_destroy(&self, ctx: ContextId, texture: u64) -> Result<()> {
        self.post(ctx, &msg::TextureDestroy { texture })
    }

    fn surface_create(&self, ctx: ContextId, resource: &Resource) -> Result<u64> {
        self.call(ctx, &msg::SurfaceCreate { resource: *resource }, |reply| reply.value)
    }

    fn surface_destroy(&self, ctx: ContextId, surface: u64) -> Result<()> {
        self.post(ctx, &msg::SurfaceDestroy { surface })
    }
}
