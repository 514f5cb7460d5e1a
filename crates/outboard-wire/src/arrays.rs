//! Arrays, textures and surfaces as they are described.

use crate::boxes::Extent;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::names::DevicePtr;
use crate::names::ObjectId;
use crate::record;

/// What `CUDA_ARRAY3D_DESCRIPTOR` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrayDescriptor {
    /// Elements of a row.
    pub width: u64,
    /// Rows; 0 for arrays of one dimension.
    pub height: u64,
    /// Slices or layers; 0 for arrays of two dimensions.
    pub depth: u64,
    /// `CUarray_format`.
    pub format: u32,
    /// Components of an element.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*`.
    pub flags: u32,
}

/// What `CUDA_ARRAY_SPARSE_PROPERTIES` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparseProperties {
    /// Elements of a tile.
    pub tile: (u32, u32, u32),
    /// The first level of the mip tail.
    pub tail_level: u32,
    /// Bytes of the mip tail.
    pub tail_bytes: u64,
    /// `CU_ARRAY_SPARSE_PROPERTIES_*`.
    pub flags: u32,
}

/// What a texture or surface reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// The array of that name.
    Array(ObjectId),
    /// The mipmapped array of that name.
    Mipmap(ObjectId),
    /// Device memory in one piece.
    Linear {
        /// Its address.
        address: DevicePtr,
        /// `CUarray_format`.
        format: u32,
        /// Components of an element.
        channels: u32,
        /// Its size.
        bytes: u64,
    },
    /// Rows in device memory.
    Pitched {
        /// Its address.
        address: DevicePtr,
        /// `CUarray_format`.
        format: u32,
        /// Components of an element.
        channels: u32,
        /// Elements of a row, rows, and bytes from one row to the next.
        size: (u64, u64, u64),
    },
}

/// How a texture is read: `CUDA_TEXTURE_DESC`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampler {
    /// `CUaddress_mode` of each dimension.
    pub address: (u32, u32, u32),
    /// `CUfilter_mode`.
    pub filter: u32,
    /// `CU_TRSF_*`.
    pub flags: u32,
    /// Greatest anisotropy.
    pub anisotropy: u32,
    /// `CUfilter_mode` between levels.
    pub mipmap_filter: u32,
    /// What is added to the level, the least and the greatest one.
    pub mipmap: (f32, f32, f32),
    /// The colour outside, for `CU_TR_ADDRESS_MODE_BORDER`.
    pub border: ((f32, f32), (f32, f32)),
}

/// A part of a resource in another format: `CUDA_RESOURCE_VIEW_DESC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// `CUresourceViewFormat`.
    pub format: u32,
    /// Width, height and depth.
    pub size: (u64, u64, u64),
    /// First and last level.
    pub levels: (u32, u32),
    /// First and last layer.
    pub layers: (u32, u32),
}

record!(ArrayDescriptor { width, height, depth, format, channels, flags });
record!(SparseProperties { tile, tail_level, tail_bytes, flags });
record!(Sampler { address, filter, flags, anisotropy, mipmap_filter, mipmap, border });
record!(View { format, size, levels, layers });

impl ArrayDescriptor {
    /// Bytes of an element, for formats whose elements stand alone.
    pub fn element(&self) -> Option<u64> {
        element(self.format, self.channels)
    }

    /// Bytes of a row, rows, slices or layers, for formats whose elements stand alone.
    pub fn extent(&self) -> Option<Extent> {
        let width = self.width.checked_mul(self.element()?)?;
        Some(Extent { width, height: self.height.max(1), depth: self.depth.max(1) })
    }

    /// Whether a box lies within the array, by bytes of its rows: drivers ask for no whole
    /// elements.
    pub fn holds(&self, at: (u64, u64, u64), part: Extent) -> bool {
        let within = |at: u64, len: u64, of: u64| at.checked_add(len).is_some_and(|end| end <= of);
        self.extent().is_some_and(|whole| {
            within(at.0, part.width, whole.width)
                && within(at.1, part.height, whole.height)
                && within(at.2, part.depth, whole.depth)
        })
    }
}

/// Bytes of an element of `channels` components, for formats (`CUarray_format`) whose elements
/// stand alone.
pub fn element(format: u32, channels: u32) -> Option<u64> {
    let channels = matches!(channels, 1 | 2 | 4).then_some(u64::from(channels))?;
    Some(match format {
        // 8, 16 and 32 bits: unsigned, signed, and floating.
        1 | 8 => channels,
        2 | 9 | 16 => 2 * channels,
        3 | 10 | 32 => 4 * channels,
        // Normalised integers with their channels in the name.
        0xc0 | 0xc6 => 1,
        0xc1 | 0xc7 | 0xc3 | 0xc9 => 2,
        0xc2 | 0xc8 | 0xc4 | 0xca => 4,
        0xc5 | 0xcb => 8,
        _ => return None,
    })
}

impl Encode for Resource {
    fn encode(&self, writer: &mut Writer) {
        match *self {
            Resource::Array(name) => writer.put(&(0u8, name)),
            Resource::Mipmap(name) => writer.put(&(1u8, name)),
            Resource::Linear { address, format, channels, bytes } => {
                writer.put(&(2u8, address));
                writer.put(&(format, channels, bytes));
            }
            Resource::Pitched { address, format, channels, size } => {
                writer.put(&(3u8, address));
                writer.put(&(format, channels, size));
            }
        }
    }
}

impl<'a> Decode<'a> for Resource {
    fn decode(reader: &mut Reader<'a>) -> Result<Resource, DecodeError> {
        let (kind, value): (u8, u64) = reader.get()?;
        Ok(match kind {
            0 => Resource::Array(ObjectId(value)),
            1 => Resource::Mipmap(ObjectId(value)),
            2 => {
                let (format, channels, bytes) = reader.get()?;
                Resource::Linear { address: DevicePtr(value), format, channels, bytes }
            }
            3 => {
                let (format, channels, size) = reader.get()?;
                Resource::Pitched { address: DevicePtr(value), format, channels, size }
            }
            _ => return Err(DecodeError::Invalid { what: "kind of resource", value: kind.into() }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_come_back() {
        let resources = [
            Resource::Array(ObjectId(7)),
            Resource::Mipmap(ObjectId(8)),
            Resource::Linear { address: DevicePtr(1 << 40), format: 32, channels: 4, bytes: 4096 },
            Resource::Pitched {
                address: DevicePtr(1 << 40),
                format: 1,
                channels: 1,
                size: (100, 7, 128),
            },
        ];
        let sampler = Sampler {
            mipmap: (0.5, 1.0, 2.0),
            border: ((0.1, 0.2), (0.3, 0.4)),
            ..Sampler::default()
        };
        for resource in resources {
            let mut writer = Writer::new();
            writer.put(&resource);
            writer.put(&sampler);
            let bytes = writer.into_vec();
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.get::<Resource>().unwrap(), resource);
            assert_eq!(reader.get::<Sampler>().unwrap(), sampler);
            reader.finish().unwrap();
        }
    }

    #[test]
    fn boxes_lie_within() {
        let array = ArrayDescriptor {
            width: 10,
            height: 5,
            format: 32,
            channels: 2,
            ..ArrayDescriptor::default()
        };
        let part = |width, height, depth| Extent { width, height, depth };
        assert!(array.holds((0, 0, 0), part(80, 5, 1)) && array.holds((72, 4, 0), part(8, 1, 1)));
        for (at, extent) in [
            ((0, 0, 0), part(88, 1, 1)),
            ((76, 0, 0), part(8, 1, 1)),
            ((0, 5, 0), part(8, 1, 1)),
            ((0, 0, 1), part(8, 1, 1)),
            ((0, u64::MAX, 0), part(8, 2, 1)),
        ] {
            assert!(!array.holds(at, extent), "{at:?} {extent:?}");
        }
    }

    #[test]
    fn elements_have_sizes() {
        assert_eq!(element(32, 4), Some(16));
        assert_eq!(element(2, 2), Some(4));
        assert_eq!(element(0xc5, 4), Some(8));
        assert_eq!(element(1, 3), None);
        assert_eq!(element(0x91, 4), None, "blocks of a compressed format are no elements");
    }
}
