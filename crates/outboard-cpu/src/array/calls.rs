//! Arrays, mipmapped arrays, and the textures and surfaces of them.

use outboard_abi::{CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED};
use outboard_front::backend::{
    ArrayDescriptor, Arrays, ContextId, DeviceId, ObjectId, Resource, Result, Sampler,
    SparseProperties, TensorMaps, View,
};

use super::{Mipmap, allocate, check, invalid, level};
use crate::cpu::Cpu;

/// Kernels here have no instructions that use tensor maps.
impl TensorMaps for Cpu {}

impl Arrays for Cpu {
    fn array_create(
        &self,
        ctx: ContextId,
        id: ObjectId,
        descriptor: &ArrayDescriptor,
    ) -> Result<ArrayDescriptor> {
        check(descriptor)?;
        let array = allocate(&self.context(ctx)?, &[*descriptor])?.swap_remove(0);
        self.arrays.insert_shared(id, array);
        Ok(*descriptor)
    }

    fn array_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        let array = self.arrays.remove(id)?;
        // What kernels in streams read through textures is not counted.
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        drop(array);
        Ok(())
    }

    fn array_plane(
        &self,
        _ctx: ContextId,
        _array: ObjectId,
        _plane: u32,
        _id: ObjectId,
    ) -> Result<ArrayDescriptor> {
        // No format with planes can be created.
        Err(invalid())
    }

    fn array_memory_requirements(
        &self,
        _ctx: ContextId,
        array: ObjectId,
        mipmapped: bool,
        _device: DeviceId,
    ) -> Result<(u64, u64)> {
        // As on GPUs, only arrays whose memory is mapped later have any: there are none.
        match mipmapped {
            true => self.mipmaps.get(array).map(drop)?,
            false => self.arrays.get(array).map(drop)?,
        }
        Err(invalid())
    }

    fn array_sparse_properties(
        &'static self,
        ctx: ContextId,
        array: ObjectId,
        mipmapped: bool,
    ) -> Result<SparseProperties> {
        // Nor are there sparse ones.
        self.array_memory_requirements(ctx, array, mipmapped, DeviceId::new(0))
            .map(|_| SparseProperties::default())
    }

    fn mipmap_create(
        &self,
        ctx: ContextId,
        id: ObjectId,
        descriptor: &ArrayDescriptor,
        levels: u32,
    ) -> Result<()> {
        check(descriptor)?;
        let volume = descriptor.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) == 0;
        let longest =
            descriptor.width.max(descriptor.height).max(if volume { descriptor.depth } else { 0 });
        let most = longest.checked_ilog2().unwrap_or(0) + 1;
        // As many as there are, whatever is asked for.
        let all: Vec<ArrayDescriptor> =
            (0..levels.clamp(1, most)).map(|index| level(descriptor, index)).collect();
        let levels = allocate(&self.context(ctx)?, &all)?;
        self.mipmaps.insert(id, Mipmap { ctx, levels });
        Ok(())
    }

    fn mipmap_destroy(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        let mipmap = self.mipmaps.remove(id)?;
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        drop(mipmap);
        Ok(())
    }

    fn mipmap_level(
        &self,
        _ctx: ContextId,
        mipmap: ObjectId,
        level: u32,
        id: ObjectId,
    ) -> Result<ArrayDescriptor> {
        let mipmap = self.mipmaps.get(mipmap)?;
        let array = mipmap.levels.get(level as usize).ok_or_else(invalid)?.clone();
        let descriptor = array.descriptor;
        self.arrays.insert_shared(id, array);
        Ok(descriptor)
    }

    fn texture_create(
        &self,
        ctx: ContextId,
        resource: &Resource,
        sampler: &Sampler,
        view: Option<&View>,
    ) -> Result<u64> {
        self.make_texture(ctx, resource, sampler, view)
    }

    fn texture_destroy(&self, ctx: ContextId, texture: u64) -> Result<()> {
        // Kernels that were queued before still use it.
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        self.context(ctx)?.objects.end_texture(texture)
    }

    fn surface_create(&self, ctx: ContextId, resource: &Resource) -> Result<u64> {
        self.make_surface(ctx, resource)
    }

    fn surface_destroy(&self, ctx: ContextId, surface: u64) -> Result<()> {
        self.scheduler.wait_all(self.scheduler.pending(ctx));
        self.context(ctx)?.objects.end_surface(surface)
    }
}
