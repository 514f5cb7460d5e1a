//! Settings of texture references.

use crate::arrays::ArrayDescriptor;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::names::DevicePtr;
use crate::names::ObjectId;

/// One setting of a texture reference, as the `cuTexRefSet*` functions take it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReferenceSetting {
    /// Bound to the array of that name; `CU_TRSA_*`.
    Array(ObjectId, u32),
    /// Bound to the mipmapped array of that name; `CU_TRSA_*`.
    Mipmap(ObjectId, u32),
    /// Bound to that many bytes of device memory.
    Memory(DevicePtr, u64),
    /// Bound to rows in device memory: its address and pitch.
    Rows(ArrayDescriptor, DevicePtr, u64),
    /// `CUarray_format` and components of an element.
    Format(u32, u32),
    /// `CUaddress_mode` of a dimension.
    AddressMode(u32, u32),
    /// `CUfilter_mode`.
    Filter(u32),
    /// `CUfilter_mode` between levels.
    MipmapFilter(u32),
    /// What is added to the level.
    MipmapBias(f32),
    /// The least and the greatest level.
    MipmapClamp(f32, f32),
    /// Greatest anisotropy.
    Anisotropy(u32),
    /// The colour outside.
    Border((f32, f32), (f32, f32)),
    /// `CU_TRSF_*`.
    Flags(u32),
}

impl Encode for ReferenceSetting {
    fn encode(&self, writer: &mut Writer) {
        use ReferenceSetting as S;
        match *self {
            S::Array(name, flags) => writer.put(&(0u8, name, flags)),
            S::Mipmap(name, flags) => writer.put(&(1u8, name, flags)),
            S::Memory(address, bytes) => writer.put(&(2u8, address, bytes)),
            S::Rows(descriptor, address, pitch) => {
                writer.put(&(3u8, address, pitch));
                writer.put(&descriptor);
            }
            S::Format(format, channels) => writer.put(&(4u8, format, channels)),
            S::AddressMode(dimension, mode) => writer.put(&(5u8, dimension, mode)),
            S::Filter(mode) => writer.put(&(6u8, mode)),
            S::MipmapFilter(mode) => writer.put(&(7u8, mode)),
            S::MipmapBias(bias) => writer.put(&(8u8, bias)),
            S::MipmapClamp(least, greatest) => writer.put(&(9u8, least, greatest)),
            S::Anisotropy(greatest) => writer.put(&(10u8, greatest)),
            S::Border(first, second) => writer.put(&(11u8, first, second)),
            S::Flags(flags) => writer.put(&(12u8, flags)),
        }
    }
}

impl<'a> Decode<'a> for ReferenceSetting {
    fn decode(reader: &mut Reader<'a>) -> Result<ReferenceSetting, DecodeError> {
        use ReferenceSetting as S;
        Ok(match reader.get::<u8>()? {
            0 => S::Array(reader.get()?, reader.get()?),
            1 => S::Mipmap(reader.get()?, reader.get()?),
            2 => S::Memory(reader.get()?, reader.get()?),
            3 => {
                let (address, pitch) = reader.get()?;
                S::Rows(reader.get()?, address, pitch)
            }
            4 => S::Format(reader.get()?, reader.get()?),
            5 => S::AddressMode(reader.get()?, reader.get()?),
            6 => S::Filter(reader.get()?),
            7 => S::MipmapFilter(reader.get()?),
            8 => S::MipmapBias(reader.get()?),
            9 => S::MipmapClamp(reader.get()?, reader.get()?),
            10 => S::Anisotropy(reader.get()?),
            11 => S::Border(reader.get()?, reader.get()?),
            12 => S::Flags(reader.get()?),
            kind => {
                return Err(DecodeError::Invalid {
                    what: "setting of a texture reference",
                    value: kind.into(),
                });
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back() {
        use ReferenceSetting as S;
        let rows = ArrayDescriptor {
            width: 60,
            height: 15,
            format: 32,
            channels: 1,
            ..ArrayDescriptor::default()
        };
        for setting in [
            S::Array(ObjectId(7), 1),
            S::Mipmap(ObjectId(8), 1),
            S::Memory(DevicePtr(1 << 40), 4096),
            S::Rows(rows, DevicePtr(1 << 40), 512),
            S::Format(32, 4),
            S::AddressMode(2, 3),
            S::Filter(1),
            S::MipmapFilter(1),
            S::MipmapBias(0.5),
            S::MipmapClamp(1.0, 2.0),
            S::Anisotropy(16),
            S::Border((0.1, 0.2), (0.3, 0.4)),
            S::Flags(3),
        ] {
            let mut writer = Writer::new();
            writer.put(&setting);
            let bytes = writer.into_vec();
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.get::<S>().unwrap(), setting);
            reader.finish().unwrap();
            assert!(Reader::new(&bytes[..bytes.len() - 1]).get::<S>().is_err());
        }
        assert!(Reader::new(&[13, 0, 0, 0, 0]).get::<S>().is_err());
    }
}
