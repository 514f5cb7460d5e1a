//! What a server says of files of the client's program.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The kind of this part: [`Files`] in a welcome.
pub const FILES: Kind = Kind(10);

/// The worker maps files of the program that come over the Unix socket by which memory is shared,
/// with `mapped_file`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files;

impl Encode for Files {
    fn encode(&self, _writer: &mut Writer) {}
}

impl<'a> Decode<'a> for Files {
    fn decode(_reader: &mut Reader<'a>) -> Result<Files, DecodeError> {
        Ok(Files)
    }
}
