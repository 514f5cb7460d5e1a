//! Reading textures.

use outboard_ptx::ir::Geometry;

use super::filter::{Footprint, footprint, point};
use super::{Component, Image, Texture};
use crate::math::narrow::f16_to_f32;

/// What a texture instruction asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FetchRequest {
    pub(crate) geometry: Geometry,
    /// The bits of the coordinates, the layer first.
    pub(crate) coords: [u32; 4],
    /// Whether coordinates are floating-point numbers.
    pub(crate) float: bool,
    pub(crate) level: f32,
}

/// A texel: bits of integers, or of floating-point numbers.
type Texel = [u32; 4];

/// Where within its layer or face a request points, and which that is.
struct Position {
    /// In elements if the coordinates are such, else from 0 to 1.
    at: [f64; 3],
    layer: u64,
    dimensions: usize,
    /// On a face of a cube, which coordinates from 0 to 1 cover, whatever the texture says.
    on_face: bool,
}

fn position(request: &FetchRequest) -> Position {
    let number = |index: usize| {
        let bits = request.coords[index];
        if request.float { f64::from(f32::from_bits(bits)) } else { f64::from(bits as i32) }
    };
    let layer = u64::from(request.coords[0]).min(i32::MAX as u64);
    match request.geometry {
        Geometry::D1 => {
            Position { at: [number(0), 0.0, 0.0], layer: 0, dimensions: 1, on_face: false }
        }
        Geometry::D2 => {
            Position { at: [number(0), number(1), 0.0], layer: 0, dimensions: 2, on_face: false }
        }
        Geometry::D3 => Position {
            at: [number(0), number(1), number(2)],
            layer: 0,
            dimensions: 3,
            on_face: false,
        },
        Geometry::A1 => {
            Position { at: [number(1), 0.0, 0.0], layer, dimensions: 1, on_face: false }
        }
        Geometry::A2 => {
            Position { at: [number(1), number(2), 0.0], layer, dimensions: 2, on_face: false }
        }
        Geometry::Cube => {
            let (face, s, t) = face([number(0), number(1), number(2)]);
            Position { at: [s, t, 0.0], layer: face, dimensions: 2, on_face: true }
        }
        Geometry::ACube => {
            let (face, s, t) = face([number(1), number(2), number(3)]);
            Position { at: [s, t, 0.0], layer: layer * 6 + face, dimensions: 2, on_face: true }
        }
    }
}

/// The face of a cube that a direction points to, and where on it, from 0 to 1.
fn face([x, y, z]: [f64; 3]) -> (u64, f64, f64) {
    let (ax, ay, az) = (x.abs(), y.abs(), z.abs());
    let (face, s, t, major) = if ax >= ay && ax >= az {
        if x >= 0.0 { (0, -z, -y, ax) } else { (1, z, -y, ax) }
    } else if ay >= az {
        if y >= 0.0 { (2, x, z, ay) } else { (3, x, -z, ay) }
    } else if z >= 0.0 {
        (4, x, -y, az)
    } else {
        (5, -x, -y, az)
    };
    let major = if major == 0.0 { 1.0 } else { major };
    (face, (s / major + 1.0) / 2.0, (t / major + 1.0) / 2.0)
}

/// Reads a texture.
pub(crate) fn fetch(texture: &Texture, request: &FetchRequest) -> Texel {
    let position = position(request);
    let sampler = &texture.sampler;
    let last = texture.levels.len() - 1;
    let [bias, least, most] = sampler.level;
    let level = if last == 0 {
        0.0
    } else {
        (request.level + bias).min(most).max(least).clamp(0.0, last as f32)
    };
    if !sampler.linear_levels || !is_float(texture) {
        return sample(texture, (level + 0.5).floor() as usize, &position, request.float);
    }
    let low = level.floor();
    let weight = f64::from(((level - low) * 256.0).round() / 256.0);
    let first = sample(texture, low as usize, &position, request.float);
    if weight == 0.0 {
        return first;
    }
    let second = sample(texture, low as usize + 1, &position, request.float);
    let mix = |a: u32, b: u32| {
        let (a, b) = (f64::from(f32::from_bits(a)), f64::from(f32::from_bits(b)));
        (((1.0 - weight) * a + weight * b) as f32).to_bits()
    };
    [0, 1, 2, 3].map(|i| mix(first[i], second[i]))
}

/// Whether a texture gives floating-point numbers.
fn is_float(texture: &Texture) -> bool {
    let component = texture.levels[0].component;
    component.is_float() || (texture.sampler.fractions && component.bytes() < 4)
}

/// The taps of a position: where to read along each dimension.
fn taps(
    texture: &Texture,
    image: &Image,
    position: &Position,
    linear: bool,
    float: bool,
) -> [Footprint; 3] {
    let sampler = &texture.sampler;
    let mut taps = [Footprint::default(); 3];
    for (dimension, tap) in taps.iter_mut().enumerate().take(position.dimensions) {
        let size = image.size[dimension];
        let from_0_to_1 = position.on_face || (sampler.normalized && float);
        let at =
            if from_0_to_1 { position.at[dimension] * size as f64 } else { position.at[dimension] };
        let mode = sampler.addressing[dimension];
        // Integer coordinates name elements.
        *tap = match linear && float {
            true => footprint(at, size, mode, sampler.normalized),
            false => point(at, size, mode, sampler.normalized),
        };
    }
    taps
}

fn sample(texture: &Texture, level: usize, position: &Position, float: bool) -> Texel {
    let image = &texture.levels[level.min(texture.levels.len() - 1)];
    let linear = texture.sampler.linear;
    let layer = position.layer.min(image.size[2] - 1);
    let taps = taps(texture, image, position, linear, float);
    let read = |corner: usize| {
        let [x, y, z] = [0, 1, 2].map(|d| taps[d].index[corner >> d & 1]);
        let z = if position.dimensions == 3 { z } else { Some(layer) };
        match (x, y, z) {
            (Some(x), Some(y), Some(z)) => texel(texture, image, [x, y, z]),
            _ => border(texture),
        }
    };
    if !linear || !float {
        return read(0);
    }
    let mixed = Mixed::of(texture);
    let mut sums = [0.0f64; 4];
    for corner in 0..1 << position.dimensions {
        let weight =
            |d: usize| if corner >> d & 1 == 1 { taps[d].weight } else { 1.0 - taps[d].weight };
        let weight: f64 = (0..position.dimensions).map(weight).product();
        if weight != 0.0 {
            let texel = read(corner);
            for (sum, bits) in sums.iter_mut().zip(texel) {
                *sum += weight * mixed.number(bits);
            }
        }
    }
    sums.map(|sum| mixed.bits(sum))
}

/// What linear filtering mixes.
#[derive(Clone, Copy)]
enum Mixed {
    Floats,
    Unsigned,
    Signed,
}

impl Mixed {
    fn of(texture: &Texture) -> Mixed {
        match texture.levels[0].component {
            _ if is_float(texture) => Mixed::Floats,
            Component::Signed(_) => Mixed::Signed,
            _ => Mixed::Unsigned,
        }
    }

    fn number(self, bits: u32) -> f64 {
        match self {
            Mixed::Floats => f32::from_bits(bits).into(),
            Mixed::Unsigned => bits.into(),
            Mixed::Signed => (bits as i32).into(),
        }
    }

    /// A GPU gives the integer that is nearest, of two the greater (seen on an H200 with unsigned
    /// ones).
    fn bits(self, number: f64) -> u32 {
        match self {
            Mixed::Floats => (number as f32).to_bits(),
            Mixed::Unsigned | Mixed::Signed => (number + 0.5).floor() as i32 as u32,
        }
    }
}

/// One component of the four elements that linear filtering would mix.
pub(crate) fn gather(texture: &Texture, request: &FetchRequest, component: usize) -> Texel {
    let position = position(request);
    let image = &texture.levels[0];
    let layer = position.layer.min(image.size[2] - 1);
    let taps = taps(texture, image, &position, true, request.float);
    let read = |right: usize, down: usize| match (taps[0].index[right], taps[1].index[down]) {
        (Some(x), Some(y)) => texel(texture, image, [x, y, layer])[component & 3],
        _ => border(texture)[component & 3],
    };
    [read(0, 1), read(1, 1), read(1, 0), read(0, 0)]
}

fn border(texture: &Texture) -> Texel {
    let border = texture.sampler.border;
    if is_float(texture) {
        border.map(f32::to_bits)
    } else {
        border.map(|value| value as i32 as u32)
    }
}

/// Reads an element. The indices lie within the image.
fn texel(texture: &Texture, image: &Image, [x, y, z]: [u64; 3]) -> Texel {
    let address = image.address + z * image.strides[1] + y * image.strides[0] + x * image.element();
    let one = if is_float(texture) { 1f32.to_bits() } else { 1 };
    let mut out = [0, 0, 0, one];
    for (channel, value) in out.iter_mut().enumerate().take(image.channels.into()) {
        *value =
            component(texture, image.component, address + channel as u64 * image.component.bytes());
    }
    out
}

fn component(texture: &Texture, component: Component, address: u64) -> u32 {
    let mut bytes = [0; 4];
    let len = component.bytes() as usize;
    // SAFETY: an image lies in device memory, which stays mapped for ever, or in memory that its
    // object keeps.
    unsafe { core::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), len) };
    let raw = u32::from_le_bytes(bytes);
    let signed =
        |bytes: u8| (raw << (32 - 8 * u32::from(bytes))) as i32 >> (32 - 8 * u32::from(bytes));
    let unsigned_fraction = |bytes: u8| (raw as f32 / ((1u32 << (8 * bytes)) - 1) as f32).to_bits();
    let signed_fraction = |bytes: u8| {
        (signed(bytes) as f32 / ((1u32 << (8 * bytes - 1)) - 1) as f32).max(-1.0).to_bits()
    };
    let fractions = texture.sampler.fractions;
    match component {
        Component::Unsigned(bytes @ (1 | 2)) if fractions => unsigned_fraction(bytes),
        Component::Signed(bytes @ (1 | 2)) if fractions => signed_fraction(bytes),
        Component::Unsigned(_) | Component::Float => raw,
        Component::Signed(bytes) => signed(bytes) as u32,
        Component::UnsignedFraction(bytes) => unsigned_fraction(bytes),
        Component::SignedFraction(bytes) => signed_fraction(bytes),
        Component::Half => f16_to_f32(raw as u16).to_bits(),
    }
}
