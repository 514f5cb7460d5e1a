//! Texture and surface objects: from descriptions to what the engine reads.

mod calls;
mod view;

use std::collections::HashSet;
use std::sync::Arc;

use outboard_abi::{CU_TRSF_NORMALIZED_COORDINATES, CU_TRSF_READ_AS_INTEGER, CUresult};
use outboard_front::backend::{Result, Sampler};
use outboard_simt::{Engine, texture as simt};
use parking_lot::Mutex;

use crate::array::Array;

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
