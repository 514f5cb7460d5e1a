//! What client and server say of memory that a virtual machine and its host share.

use super::Kind;
use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};

/// The kind of these parts: [`Able`] in the hello of a session, [`Offer`] in the welcome.
pub const IVSHMEM: Kind = Kind(15);

/// The client has a device with such memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Able {
    /// By what the server knows it.
    pub region: [u8; 16],
}

/// What the session gets of it. If that is not nothing, the client says for each of the session's
/// connections whether it moves there, in the messages of `outboard_transport::ivshmem`: behind the
/// welcome that says this; and on each further connection before the welcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer {
    /// Where the session's part begins, in bytes.
    pub offset: u64,
    /// The part's size; 0 if there is none.
    pub bytes: u64,
    /// If there is none: why.
    pub missing: String,
}

impl Encode for Able {
    fn encode(&self, writer: &mut Writer) {
        writer.fixed(&self.region);
    }
}

impl<'a> Decode<'a> for Able {
    fn decode(reader: &mut Reader<'a>) -> Result<Able, DecodeError> {
        Ok(Able { region: reader.array()? })
    }
}

impl Encode for Offer {
    fn encode(&self, writer: &mut Writer) {
        writer.put(&self.offset);
        writer.put(&self.bytes);
        writer.put(&self.missing);
    }
}

impl<'a> Decode<'a> for Offer {
    fn decode(reader: &mut Reader<'a>) -> Result<Offer, DecodeError> {
        Ok(Offer { offset: reader.get()?, bytes: reader.get()?, missing: reader.get()? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Extensions;
    use super::*;

    #[test]
    fn they_travel() {
        let mut more = Extensions::default();
        let able = Able { region: [7; 16] };
        more.set(IVSHMEM, &able);
        assert_eq!(more.get(IVSHMEM), Ok(Some(able)));
        for offer in [
            Offer { offset: 4096, bytes: 8 << 20, missing: String::new() },
            Offer { missing: "none is free".to_owned(), ..Offer::default() },
        ] {
            more.set(IVSHMEM, &offer);
            assert_eq!(more.get(IVSHMEM), Ok(Some(offer)));
        }
        more.set(IVSHMEM, &7_u32);
        assert!(more.get::<Able>(IVSHMEM).is_err() && more.get::<Offer>(IVSHMEM).is_err());
    }
}
