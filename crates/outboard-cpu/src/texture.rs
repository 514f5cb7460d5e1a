//! Texture and surface objects: from descriptions to what the engine reads.

use std::collections::HashSet;
use std::sync::Arc;

use outboard_abi::{
    CU_TRSF_NORMALIZED_COORDINATES, CU_TRSF_READ_AS_INTEGER, CUDA_ARRAY3D_CUBEMAP,
    CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST, CUresult,
};
use outboard_front::backend::{ContextId, DevicePtr, Resource, Result, Sampler, View};
use outboard_simt::{Engine, texture as simt};
use outboard_wire::arrays::element;
use parking_lot::Mutex;

use crate::array::Array;
use crate::cpu::Cpu;

/// `CU_TRSF_*` that are known: integers, normalised coordinates, no trilinear optimisation,
/// seamless cubemaps.
const FLAGS: u32 = 0x63;
/// Linear memory begins at multiples of this, as the device's attribute says.
const ALIGNMENT: u64 = 512;
/// Rows of pitched memory, likewise.
const PITCH: u64 = 32;

fn invalid() -> CUresult {
    CUresult::CUDA_ERROR_INVALID_VALUE
}

/// How components of a format are stored, and how many an element has.
fn component(format: u32, channels: u32) -> Result<(simt::Component, u8)> {
    use simt::Component as C;
    let channels = u8::try_from(channels).map_err(|_| invalid())?;
    let plain = |component| Ok((component, channels));
    match format {
        1 => plain(C::Unsigned(1)),
        2 => plain(C::Unsigned(2)),
        3 => plain(C::Unsigned(4)),
        8 => plain(C::Signed(1)),
        9 => plain(C::Signed(2)),
        10 => plain(C::Signed(4)),
        16 => plain(C::Half),
        32 => plain(C::Float),
        0xc0..=0xc2 => Ok((C::UnsignedFraction(1), 1 << (format - 0xc0))),
        0xc3..=0xc5 => Ok((C::UnsignedFraction(2), 1 << (format - 0xc3))),
        0xc6..=0xc8 => Ok((C::SignedFraction(1), 1 << (format - 0xc6))),
        0xc9..=0xcb => Ok((C::SignedFraction(2), 1 << (format - 0xc9))),
        _ => Err(invalid()),
    }
}

fn image_of(array: &Array) -> Result<simt::Image> {
    let d = &array.descriptor;
    let (component, channels) = component(d.format, d.channels)?;
    let layout = array.layout();
    Ok(simt::Image {
        address: array.address,
        size: [d.width, d.height.max(1), d.depth.max(1)],
        strides: [layout.pitch, layout.slice],
        component,
        channels,
    })
}

fn addressing(mode: u32) -> Result<simt::Addressing> {
    Ok(match mode {
        0 => simt::Addressing::Wrap,
        1 => simt::Addressing::Clamp,
        2 => simt::Addressing::Mirror,
        3 => simt::Addressing::Border,
        _ => return Err(invalid()),
    })
}

fn sampler(s: &Sampler) -> Result<simt::Sampler> {
    if s.flags & !FLAGS != 0 || s.filter > 1 || s.mipmap_filter > 1 {
        return Err(invalid());
    }
    let (x, y, z) = s.address;
    let ((red, green), (blue, alpha)) = s.border;
    Ok(simt::Sampler {
        addressing: [addressing(x)?, addressing(y)?, addressing(z)?],
        linear: s.filter == 1,
        normalized: s.flags & CU_TRSF_NORMALIZED_COORDINATES != 0,
        fractions: s.flags & CU_TRSF_READ_AS_INTEGER == 0,
        linear_levels: s.mipmap_filter == 1,
        level: [s.mipmap.0, s.mipmap.1, s.mipmap.2],
        border: [red, green, blue, alpha],
    })
}

/// Texture and surface objects of one context.
pub(crate) struct TextureObjects {
    engine: Arc<Engine>,
    textures: Mutex<HashSet<u64>>,
    surfaces: Mutex<HashSet<u64>>,
}

impl TextureObjects {
    pub(crate) fn new(engine: Arc<Engine>) -> TextureObjects {
        TextureObjects { engine, textures: Mutex::default(), surfaces: Mutex::default() }
    }

    fn add_texture(&self, texture: simt::Texture) -> u64 {
        let value = self.engine.textures().add(texture);
        self.textures.lock().insert(value);
        value
    }

    fn add_surface(&self, surface: simt::Surface) -> u64 {
        let value = self.engine.surfaces().add(surface);
        self.surfaces.lock().insert(value);
        value
    }

    pub(crate) fn end_texture(&self, value: u64) -> Result<()> {
        let known = self.textures.lock().remove(&value) && self.engine.textures().remove(value);
        known.then_some(()).ok_or_else(invalid)
    }

    pub(crate) fn end_surface(&self, value: u64) -> Result<()> {
        let known = self.surfaces.lock().remove(&value) && self.engine.surfaces().remove(value);
        known.then_some(()).ok_or_else(invalid)
    }

    /// Ends all: the context has ended. What they keep may keep the context in turn.
    pub(crate) fn end_all(&self) {
        self.textures.lock().drain().for_each(|value| _ = self.engine.textures().remove(value));
        self.surfaces.lock().drain().for_each(|value| _ = self.engine.surfaces().remove(value));
    }
}

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
        view: Option<&View>,
    ) -> Result<u64> {
        let mut sampler = sampler(described)?;
        let keep: Option<Arc<dyn std::any::Any + Send + Sync>>;
        let mut layered = false;
        let is_layered = |array: &Array| {
            array.descriptor.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0
        };
        let levels = match resource {
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
        if view.is_some() {
            // Other formats and parts of an array are not read here.
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let component = levels.first().ok_or_else(invalid)?.component;
        let float = component.is_float() || (sampler.fractions && component.bytes() < 4);
        if sampler.linear && !float {
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
