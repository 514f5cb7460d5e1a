//! Frames on bulk lanes, the connections that carry the bytes of large copies.
//!
//! A transfer is cut into chunks of one size, the last one shorter. Its chunks travel on any lanes
//! in any order, each behind a [`LaneHeader`]. Towards the worker, no chunk is sent before it is
//! granted: the command that announces the transfer grants the first ones, [`LaneKind::Grant`]
//! frames the others as staging memory becomes free. So whatever arrives has a place to go, and no
//! transfer holds up another. Towards the client, the destination is always there.
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
    /// Bytes that follow: a chunk's or an answer's, otherwise 0.
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
            value => {
                return Err(DecodeError::Invalid {
                    what: "kind of lane frame",
                    value: value.into(),
                });
            }
        };
        let header =
            LaneHeader { kind, index: reader.u32()?, transfer: reader.u64()?, len: reader.u32()? };
        let limit =
            if matches!(kind, LaneKind::Chunk | LaneKind::Answer) { *CHUNK_BYTES.end() } else { 0 };
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

    proptest! {
        #[test]
        fn headers_round_trip_or_are_refused(bytes: [u8; 24], kind in 0u8..8) {
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
