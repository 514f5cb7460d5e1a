//! Images by content.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// What tells an image from every other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageName {
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// How many they are.
    pub bytes: u64,
}

impl Encode for ImageName {
    fn encode(&self, writer: &mut Writer) {
        writer.fixed(&self.hash);
        writer.u64(self.bytes);
    }
}

impl<'a> Decode<'a> for ImageName {
    fn decode(reader: &mut Reader<'a>) -> Result<ImageName, DecodeError> {
        Ok(ImageName { hash: reader.array()?, bytes: reader.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        let name = ImageName { hash: core::array::from_fn(|index| index as u8), bytes: 1 << 40 };
        let mut writer = Writer::new();
        writer.put(&name);
        assert_eq!(crate::codec::decode_all(writer.as_slice()), Ok(name));
        assert!(crate::codec::decode_all::<ImageName>(&writer.as_slice()[1..]).is_err());
    }
}
