//! Texture and surface objects: made of descriptions.

use std::sync::Arc;

use outboard_abi::{CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST};
use outboard_front::backend::{ContextId, DevicePtr, Resource, Result, Sampler, View};
use outboard_simt::texture as simt;
use outboard_wire::arrays::element;

use super::{ALIGNMENT, PITCH, component, image_of, invalid, sampler, view};
use crate::array::Array;
use crate::cpu::Cpu;

impl Cpu {
    /// Elements of linear or pitched memory, which must be the device's own: it stays mapped
    /// whatever the program does.
    fn image_in_memory(&self, ctx: ContextId, resource: &Resource) -> Result<simt::Image> {
        let (address, format, channels, (width, height, pitch)) = match *resource {
            Resource::Linear { address: DevicePtr(address), format, channels, bytes } => {
                // It may be said to reach beyond the allocation; there as well elements read as
                // zero.
                let held = self.context(ctx)?.engine.memory().range_of(address);
                let bytes = held.map_or(bytes, |(start, held)| bytes.min(start + held - address));
                let width = bytes / element(format, channels).ok_or_else(invalid)?;
                (address, format, channels, (width, 1, bytes))
            }
            Resource::Pitched { address: DevicePtr(address), format, channels, size } => {
                (address, format, channels, size)
            }
            Resource::Array(_) | Resource::Mipmap(_) => return Err(invalid()),
        };
        let row = element(format, channels)
            .and_then(|element| width.checked_mul(element))
            .ok_or_else(invalid)?;
        let above =
            height.checked_sub(1).and_then(|rows| rows.checked_mul(pitch)).ok_or_else(invalid)?;
        let bytes = above.checked_add(row).ok_or_else(invalid)?;
        let context = self.context(ctx)?;
        let memory = context.engine.memory();
        let pitch_fits = height == 1 || (pitch >= row && pitch.is_multiple_of(PITCH));
        let fits = width > 0 && pitch_fits && address.is_multiple_of(ALIGNMENT);
        if !fits || !memory.contains(address) || !memory.check(address, bytes) {
            return Err(invalid());
        }
        let (component, channels) = component(format, channels)?;
        Ok(simt::Image {
            address,
            size: [width, height, 1],
            strides: [pitch, 0],
            component,
            channels,
        })
    }

    pub(crate) fn make_texture(
        &self,
        ctx: ContextId,
        resource: &Resource,
        described: &Sampler,
        part: Option<&View>,
    ) -> Result<u64> {
        let mut sampler = sampler(described)?;
        let keep: Option<Arc<dyn std::any::Any + Send + Sync>>;
        let mut layered = false;
        let is_layered = |array: &Array| {
            array.descriptor.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0
        };
        let mut levels = match resource {
            Resource::Array(name) => {
                let array = self.arrays.get(*name)?;
                layered = is_layered(&array);
                let levels = vec![image_of(&array)?];
                keep = Some(array);
                levels
            }
            Resource::Mipmap(name) => {
                let mipmap = self.mipmaps.get(*name)?;
                layered = mipmap.levels.first().is_some_and(|array| is_layered(array));
                let levels =
                    mipmap.levels.iter().map(|array| image_of(array)).collect::<Result<_>>()?;
                keep = Some(mipmap);
                levels
            }
            Resource::Linear { .. } => {
                keep = None;
                // Elements outside read as zero, and nothing is mixed.
                sampler.addressing = [simt::Addressing::Border; 3];
                (sampler.border, sampler.linear) = ([0.0; 4], false);
                vec![self.image_in_memory(ctx, resource)?]
            }
            Resource::Pitched { .. } => {
                keep = None;
                vec![self.image_in_memory(ctx, resource)?]
            }
        };
        if let Some(part) = part {
            // Memory has no views.
            if !matches!(resource, Resource::Array(_) | Resource::Mipmap(_)) {
                return Err(invalid());
            }
            levels = view::seen(&levels, layered, part)?;
        }
        let component = levels.first().ok_or_else(invalid)?.component;
        if sampler.linear && !component.is_float() && component.bytes() == 4 {
            return Err(invalid());
        }
        let texture = simt::Texture { levels, sampler, layered, keep };
        Ok(self.context(ctx)?.objects.add_texture(texture))
    }

    pub(crate) fn make_surface(&self, ctx: ContextId, resource: &Resource) -> Result<u64> {
        let Resource::Array(name) = resource else { return Err(invalid()) };
        let array = self.arrays.get(*name)?;
        if array.descriptor.flags & CUDA_ARRAY3D_SURFACE_LDST == 0 {
            return Err(invalid());
        }
        let image = image_of(&array)?;
        Ok(self.context(ctx)?.objects.add_surface(simt::Surface { image, keep: Some(array) }))
    }
}
