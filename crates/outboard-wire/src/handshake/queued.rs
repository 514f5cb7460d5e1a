//! What a server says of copies to the device that find no staging memory.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The kind of this part: [`Queued`] in a welcome.
pub const QUEUED: Kind = Kind(9);

/// The worker gives staging memory to copies that are announced by `copy_box_in_queued` when their
/// stream has come to them: they do not count among what the client keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued;

impl Encode for Queued {
    fn encode(&self, _writer: &mut Writer) {}
}

impl<'a> Decode<'a> for Queued {
    fn decode(_reader: &mut Reader<'a>) -> Result<Queued, DecodeError> {
        Ok(Queued)
    }
}
