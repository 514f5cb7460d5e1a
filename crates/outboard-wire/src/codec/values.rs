//! How values of common types are encoded.

use super::{Decode, DecodeError, Encode, Reader, Writer};

macro_rules! numbers {
    ($($type:ident)*) => {
        impl Writer {
            $(
                #[doc = concat!("Appends a `", stringify!($type), "`.")]
                #[inline]
                pub fn $type(&mut self, value: $type) {
                    self.buffer.extend_from_slice(&value.to_le_bytes());
                }
            )*
        }
        impl<'a> Reader<'a> {
            $(
                #[doc = concat!("Reads a `", stringify!($type), "`.")]
                ///
                /// # Errors
                /// [`DecodeError::Short`] if fewer bytes are left than the number has.
                #[inline]
                pub fn $type(&mut self) -> Result<$type, DecodeError> {
                    Ok($type::from_le_bytes(self.array()?))
                }
            )*
        }
        $(
            impl Encode for $type {
                #[inline]
                fn encode(&self, writer: &mut Writer) {
                    writer.$type(*self);
                }
            }
            impl<'a> Decode<'a> for $type {
                #[inline]
                fn decode(reader: &mut Reader<'a>) -> Result<$type, DecodeError> {
                    reader.$type()
                }
            }
        )*
    };
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 f32 f64);

/// Sizes travel as `u64`; one that does not fit this machine's `usize` is an error.
impl Encode for usize {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        writer.u64(*self as u64);
    }
}

impl<'a> Decode<'a> for usize {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<usize, DecodeError> {
        let value = reader.u64()?;
        usize::try_from(value).map_err(|_| DecodeError::Invalid { what: "size", value })
    }
}

impl Encode for bool {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        writer.u8(u8::from(*self));
    }
}

impl<'a> Decode<'a> for bool {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<bool, DecodeError> {
        match reader.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(DecodeError::Invalid { what: "boolean", value: value.into() }),
        }
    }
}

impl Encode for [u8] {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        writer.bytes(self);
    }
}

impl<'a> Decode<'a> for &'a [u8] {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
        reader.bytes()
    }
}

impl Encode for str {
    fn encode(&self, writer: &mut Writer) {
        writer.str(self);
    }
}

impl<'a> Decode<'a> for &'a str {
    fn decode(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
        reader.str()
    }
}

impl Encode for String {
    fn encode(&self, writer: &mut Writer) {
        writer.str(self);
    }
}

impl<'a> Decode<'a> for String {
    fn decode(reader: &mut Reader<'a>) -> Result<String, DecodeError> {
        Ok(reader.str()?.to_owned())
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        (**self).encode(writer);
    }
}

/// A byte tells whether a value follows.
impl<T: Encode> Encode for Option<T> {
    fn encode(&self, writer: &mut Writer) {
        match self {
            None => writer.u8(0),
            Some(value) => {
                writer.u8(1);
                value.encode(writer);
            }
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Option<T>, DecodeError> {
        match reader.u8()? {
            0 => Ok(None),
            1 => Ok(Some(T::decode(reader)?)),
            value => Err(DecodeError::Invalid { what: "option", value: value.into() }),
        }
    }
}

/// A count and the elements. Bytes go as `[u8]`, in one piece.
impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, writer: &mut Writer) {
        writer.length(self.len());
        for value in self {
            value.encode(writer);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    fn decode(reader: &mut Reader<'a>) -> Result<Vec<T>, DecodeError> {
        // Every element takes a byte at least, and the vector starts no larger than the bytes that
        // are there.
        let count = reader.count(1)?;
        let mut values =
            Vec::with_capacity(count.min(reader.remaining() / core::mem::size_of::<T>().max(1)));
        for _ in 0..count {
            values.push(T::decode(reader)?);
        }
        Ok(values)
    }
}

/// The elements without a count: both sides know it.
impl<T: Encode, const N: usize> Encode for [T; N] {
    fn encode(&self, writer: &mut Writer) {
        for value in self {
            value.encode(writer);
        }
    }
}

impl<'a, T: Decode<'a> + Copy + Default, const N: usize> Decode<'a> for [T; N] {
    fn decode(reader: &mut Reader<'a>) -> Result<[T; N], DecodeError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::decode(reader)?;
        }
        Ok(values)
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Writer) {}
}

impl<'a> Decode<'a> for () {
    fn decode(_: &mut Reader<'a>) -> Result<(), DecodeError> {
        Ok(())
    }
}
