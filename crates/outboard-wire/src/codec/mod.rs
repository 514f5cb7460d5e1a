//! The encoding: little-endian integers, lengths as `u32` before what they count.

mod values;

use crate::limits;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends inside a field.
    #[error("the message ends {missing} bytes short of a field")]
    Short {
        /// Bytes that the field still needed.
        missing: usize,
    },
    /// Bytes are left over after the last field.
    #[error("{extra} bytes follow the last field of the message")]
    Trailing {
        /// Bytes left over.
        extra: usize,
    },
    /// A length or count exceeds its limit.
    #[error("a length of {found} exceeds the limit of {limit}")]
    TooLong {
        /// The length on the wire.
        found: usize,
        /// The limit it exceeds.
        limit: usize,
    },
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// A tag or value has no meaning here.
    #[error("the value {value} is not a valid {what}")]
    Invalid {
        /// What was being decoded.
        what: &'static str,
        /// The value found.
        value: u64,
    },
}

/// Appends values to a byte buffer.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
}

/// Reads values from a byte slice, never past its end.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// A value that can be written to the wire.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, writer: &mut Writer);
}

/// A value that can be read from the wire; it may borrow from the message.
pub trait Decode<'a>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes left are too few for the value, or have a length, a text or a
    /// number that it cannot have.
    fn decode(reader: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

impl Writer {
    /// An empty writer.
    pub const fn new() -> Writer {
        Writer { buffer: Vec::new() }
    }

    /// An empty writer with room for `bytes`.
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer { buffer: Vec::with_capacity(bytes) }
    }

    /// Continues after the bytes in `buffer`.
    pub fn append_to(buffer: Vec<u8>) -> Writer {
        Writer { buffer }
    }

    /// What has been written.
    pub fn as_slice(&self) -> &[u8] {
        &self.buffer
    }

    /// The buffer with what has been written.
    pub fn into_vec(self) -> Vec<u8> {
        self.buffer
    }

    /// Bytes written so far.
    #[inline]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether nothing has been written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Cuts the writer back to `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
    }

    /// Makes room for `bytes` more.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
    }

    /// What is there for more without another allocation.
    #[inline]
    pub fn room(&mut self) -> &[core::mem::MaybeUninit<u8>] {
        self.buffer.spare_capacity_mut()
    }

    /// Overwrites the four bytes at `at` (written before) with `value`.
    ///
    /// # Panics
    /// If fewer than `at + 4` bytes have been written.
    #[inline]
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        self.buffer[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Appends a value.
    #[inline]
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Appends bytes as they are, without a length.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Appends a length (`u32`) and the bytes.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` bytes; callers bound what they send long before.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.buffer.extend_from_slice(bytes);
    }

    /// Appends a string as its bytes with their length.
    #[inline]
    pub fn str(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Appends a count as `u32`.
    ///
    /// # Panics
    /// If the count exceeds `u32::MAX`.
    #[inline]
    pub fn length(&mut self, count: usize) {
        let count = u32::try_from(count).expect("counts on the wire are below 2^32");
        self.u32(count);
    }
}

impl<'a> Reader<'a> {
    /// Reads from `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// Bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes all bytes not read yet.
    pub fn take_rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// Succeeds if everything has been read.
    ///
    /// # Errors
    /// [`DecodeError::Trailing`] with the number of bytes left.
    #[inline]
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Trailing { extra: self.rest.len() })
        }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// As [`Decode::decode`] of the type.
    #[inline]
    pub fn get<T: Decode<'a>>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// Reads `count` bytes that have no length before them.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer bytes are left.
    #[inline]
    pub fn fixed(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        if count > self.rest.len() {
            return Err(DecodeError::Short { missing: count - self.rest.len() });
        }
        let (head, tail) = self.rest.split_at(count);
        self.rest = tail;
        Ok(head)
    }

    /// Reads an array of bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if fewer than `N` bytes are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let Some((head, tail)) = self.rest.split_first_chunk::<N>() else {
            return Err(DecodeError::Short { missing: N - self.rest.len() });
        };
        self.rest = tail;
        Ok(*head)
    }

    /// Reads a length and that many bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`] if the length or the bytes are not all there.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = self.u32()? as usize;
        self.fixed(count)
    }

    /// Reads a length and that many bytes, at most `limit`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] for a length above `limit`, otherwise as [`Reader::bytes`].
    pub fn bytes_up_to(&mut self, limit: usize) -> Result<&'a [u8], DecodeError> {
        let count = self.u32()? as usize;
        if count > limit {
            return Err(DecodeError::TooLong { found: count, limit });
        }
        self.fixed(count)
    }

    /// Reads a string of at most [`limits::MAX_STRING`] bytes.
    ///
    /// # Errors
    /// As [`Reader::bytes_up_to`], and [`DecodeError::Utf8`].
    pub fn str(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes_up_to(limits::MAX_STRING)?;
        core::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)
    }

    /// Reads the count of a sequence whose elements take at least `element` bytes each, so that no
    /// allocation is made for elements that cannot be there.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] above [`limits::MAX_ITEMS`], [`DecodeError::Short`] if fewer bytes
    /// are left than so many elements take.
    pub fn count(&mut self, element: usize) -> Result<usize, DecodeError> {
        let count = self.u32()? as usize;
        if count > limits::MAX_ITEMS {
            return Err(DecodeError::TooLong { found: count, limit: limits::MAX_ITEMS });
        }
        let needed = count.saturating_mul(element.max(1));
        if needed > self.rest.len() {
            return Err(DecodeError::Short { missing: needed - self.rest.len() });
        }
        Ok(count)
    }
}

/// Encodes structures field by field, in the order given.
#[macro_export]
macro_rules! record {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl $crate::Encode for $type {
            fn encode(&self, writer: &mut $crate::Writer) {
                $(writer.put(&self.$field);)*
            }
        }

        impl<'a> $crate::Decode<'a> for $type {
            fn decode(reader: &mut $crate::Reader<'a>) -> Result<Self, $crate::DecodeError> {
                Ok($type { $($field: reader.get()?),* })
            }
        }
    )*};
}

/// Encodes an enumeration as a byte and the fields of the variant.
#[macro_export]
#[doc(hidden)]
macro_rules! choice {
    ($type:ident, $what:literal { $($tag:literal = $variant:ident $(($inner:ident))? $({ $($field:ident),* })?;)* }) => {
        impl $crate::Encode for $type {
            fn encode(&self, writer: &mut $crate::Writer) {
                match self {
                    $($type::$variant $(($inner))? $({ $($field),* })? => {
                        writer.u8($tag);
                        $(writer.put($inner);)?
                        $($(writer.put($field);)*)?
                    })*
                }
            }
        }

        impl<'a> $crate::Decode<'a> for $type {
            fn decode(reader: &mut $crate::Reader<'a>) -> Result<Self, $crate::DecodeError> {
                Ok(match reader.u8()? {
                    $($tag => {
                        $(let $inner = reader.get()?;)?
                        $($(let $field = reader.get()?;)*)?
                        $type::$variant $(($inner))? $({ $($field),* })?
                    })*
                    value => return Err($crate::DecodeError::Invalid { what: $what, value: value.into() }),
                })
            }
        }
    };
}

/// Decodes one value that takes all of `bytes`.
///
/// # Errors
/// As [`Decode::decode`] of the type, and [`DecodeError::Trailing`].
pub fn decode_all<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    let mut reader = Reader::new(bytes);
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

#[cfg(test)]
mod tests;
