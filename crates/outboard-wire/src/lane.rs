//! Frames on bulk lanes, the connections that carry the bytes of large copies.
//!
//! A transfer is cut into chunks of one size, the last one shorter. Its chunks travel on any lanes
//! in any order, each behind a [`LaneHeader`]. Towards the worker, no chunk is sent before it is
//! granted: the command that announces the transfer grants the first ones, [`LaneKind::Grant`]
//! frames the others as staging memory becomes free. So whatever arrives has a place to go, and no
//! transfer holds up another. Towards the client, the destination is always there.
//!
//! Where an adapter of the worker's moves bytes itself, from and to memory that the client lends, a
//! chunk is a frame without them: [`LaneKind::Readable`] towards the worker, [`LaneKind::Written`]
//! towards the client. After a loss, what has not moved is sent again with its bytes.
//!
//! Between two workers, chunks and grants go both ways, and no chunk is sent before it is granted,
//! the first ones included: the grant says that the receiving worker has staging memory.

use crate::codec::{DecodeError, Reader, Writer};
use crate::limits::CHUNK_BYTES;

/// What precedes everything on a lane: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneHeader {
    /// What the frame is.
    pub kind: LaneKind,
    /// The client's number for the transfer, or the worker's for the request.
    pub transfer: u64,
    /// The chunk's index, or the number of chunks granted or sent so far, or a status.
    pub index: u32,
    /// Bytes of the chunk or the answer, otherwise 0. They follow, unless an adapter moves them.
    pub len: u32,
}

/// The kinds of frame on a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneKind {
    /// A chunk of the transfer's bytes; both ways.
    Chunk,
    /// Worker to client: chunks with an index below `index` may be sent.
    Grant,
    /// Worker to client: the transfer's staging memory is free again. `index` is 0 if all of its
    /// bytes are where they belong.
    Done,
    /// Worker to client: of a transfer towards the client, `index` chunks have been sent, and no
    /// more will be.
    Cancelled,
    /// Client to worker: the answer to request `transfer`, with the status `index`.
    Answer,
    /// Nothing but how many frames have been received, which every header says. Not itself counted.
    /// Since 1.4, as that.
    Acknowledge,
    /// Worker to worker: what the number `transfer` stands for has happened, or never will if
    /// `index` is not 0.
    Reached,
    /// Client to worker: an adapter may move the bytes of a transfer to or from memory that the
    /// client lends. A [`Lent`] follows.
    Lend,
    /// Worker to client: the chunk's bytes have been written there.
    Written,
    /// Client to worker: the chunk's bytes are to be read from memory that the client lends. A
    /// [`Place`] follows. The frame has been received when they have been read.
    Readable,
    /// Worker to client, which has said that it heeds it: an adapter moves bytes between lent
    /// memory and the device itself, so copies to the device from there need no staging memory.
    Unstaged,
}

/// A place in memory that the client lends to an adapter of the worker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its address in the client.
    pub address: u64,
    /// The key that opens it.
    pub key: u32,
}

/// Memory for all bytes of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lent {
    /// Where it begins.
    pub place: Place,
    /// Bytes of the transfer.
    pub bytes: u64,
    /// Bytes of each chunk but the last.
    pub chunk: u32,
}

impl Place {
    /// Bytes on the wire.
    pub const SIZE: usize = 12;

    /// As it travels.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..].copy_from_slice(&self.key.to_le_bytes());
        bytes
    }

    /// Reads one with room for so many bytes behind it.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if no memory could be there.
    pub fn decode(encoded: &[u8; Self::SIZE], bytes: u64) -> Result<Place, DecodeError> {
        let mut reader = Reader::new(encoded);
        let place = Place { address: reader.u64()?, key: reader.u32()? };
        let end = place.address.checked_add(bytes);
        end.map(|_| place).ok_or(DecodeError::Invalid { what: "lent memory", value: place.address })
    }
}

impl Lent {
    /// Bytes on the wire.
    pub const SIZE: usize = Place::SIZE + 12;

    /// As it travels.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..Place::SIZE].copy_from_slice(&self.place.encode());
        bytes[Place::SIZE..][..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[Place::SIZE + 8..].copy_from_slice(&self.chunk.to_le_bytes());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if no memory could be there.
    pub fn decode(encoded: &[u8; Self::SIZE]) -> Result<Lent, DecodeError> {
        let mut reader = Reader::new(encoded);
        let place: [u8; Place::SIZE] = reader.array()?;
        let (bytes, chunk) = (reader.u64()?, reader.u32()?);
        Ok(Lent { place: Place::decode(&place, bytes)?, bytes, chunk })
    }

    /// Where the chunk of that index belongs, if it lies in the memory.
    pub fn place_of(&self, index: u32, len: u32) -> Option<Place> {
        let offset = u64::from(index) * u64::from(self.chunk);
        let lies_within = offset.checked_add(len.into()).is_some_and(|end| end <= self.bytes);
        lies_within.then_some(Place { address: self.place.address + offset, ..self.place })
    }
}

impl LaneHeader {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 24;

    /// The header as it travels, from a side that has received so many frames on the lane itself.
    pub fn encode_with(&self, received: u64) -> [u8; Self::SIZE] {
        let mut bytes = self.encode();
        bytes[20..].copy_from_slice(&(received as u32).to_le_bytes());
        bytes
    }

    /// How many frames the side that made a header had received: the low half of the number.
    pub fn received(bytes: &[u8; Self::SIZE]) -> u32 {
        let [.., a, b, c, d] = *bytes;
        u32::from_le_bytes([a, b, c, d])
    }

    /// The header as it travels.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut writer = Writer::with_capacity(Self::SIZE);
        writer.u32(self.kind as u32);
        writer.u32(self.index);
        writer.u64(self.transfer);
        writer.u32(self.len);
        writer.u32(0);
        let mut bytes = [0; Self::SIZE];
        bytes.copy_from_slice(writer.as_slice());
        bytes
    }

    /// Reads a header and checks its kind and length.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] for a kind that does not exist, [`DecodeError::TooLong`] for more
    /// bytes than a frame of its kind may have.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<LaneHeader, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = match reader.u32()? {
            0 => LaneKind::Chunk,
            1 => LaneKind::Grant,
            2 => LaneKind::Done,
            3 => LaneKind::Cancelled,
            4 => LaneKind::Answer,
            5 => LaneKind::Acknowledge,
            6 => LaneKind::Reached,
            7 => LaneKind::Lend,
            8 => LaneKind::Written,
            9 => LaneKind::Readable,
            10 => LaneKind::Unstaged,
            value => {
                return Err(DecodeError::Invalid {
                    what: "kind of lane frame",
                    value: value.into(),
                });
            }
        };
        let header =
            LaneHeader { kind, index: reader.u32()?, transfer: reader.u64()?, len: reader.u32()? };
        let limit = match kind {
            LaneKind::Chunk | LaneKind::Answer | LaneKind::Written | LaneKind::Readable => {
                *CHUNK_BYTES.end()
            }
            _ => 0,
        };
        if header.len as usize > limit {
            return Err(DecodeError::TooLong { found: header.len as usize, limit });
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_bytes() {
        let header = LaneHeader { kind: LaneKind::Grant, transfer: 0x0102, index: 9, len: 0 };
        let bytes = header.encode();
        assert_eq!(bytes[..16], [1, 0, 0, 0, 9, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(LaneHeader::decode(&bytes), Ok(header));
        let bytes = header.encode_with((7 << 32) | 0x0304);
        assert_eq!(
            (LaneHeader::decode(&bytes), LaneHeader::received(&bytes)),
            (Ok(header), 0x0304)
        );
    }

    #[test]
    fn lent_memory_has_a_place_for_each_chunk_and_none_beyond() {
        let place = Place { address: 0x7f00_0000_1000, key: 0xdead_beef };
        let lent = Lent { place, bytes: 1000, chunk: 300 };
        assert_eq!(Lent::decode(&lent.encode()), Ok(lent));
        assert_eq!(Place::decode(&place.encode(), 1000), Ok(place));
        let at =
            |index, len| lent.place_of(index, len).map(|place| place.address - 0x7f00_0000_1000);
        assert_eq!((at(0, 300), at(3, 100), at(1, 300)), (Some(0), Some(900), Some(300)));
        assert_eq!((at(3, 101), at(4, 1), at(u32::MAX, 300)), (None, None, None));
        let beyond = Place { address: u64::MAX - 999, ..place };
        assert!(Place::decode(&beyond.encode(), 999).is_ok());
        assert!(Place::decode(&beyond.encode(), 1000).is_err());
        assert!(Lent::decode(&Lent { place: beyond, ..lent }.encode()).is_err());
    }

    proptest! {
        #[test]
        fn headers_round_trip_or_are_refused(bytes: [u8; 24], kind in 0u8..11) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&u32::from(kind).to_le_bytes());
            if let Ok(header) = LaneHeader::decode(&bytes) {
                prop_assert!(header.len as usize <= *CHUNK_BYTES.end());
                bytes[20..].fill(0);
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
