//! What hellos say of waiting for a server's devices.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// In a probe's hello: keep a place for the session that follows.
pub const RESERVE: Kind = Kind(3);

/// A place for a session on these devices, please.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserve {
    /// Indices of devices, as the session will name them; empty for all.
    pub devices: Vec<u32>,
}

impl Encode for Reserve {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.devices);
    }
}

impl<'a> Decode<'a> for Reserve {
    fn decode(reader: &mut Reader<'a>) -> Result<Reserve, DecodeError> {
        Ok(Reserve { devices: reader.get()? })
    }
}
