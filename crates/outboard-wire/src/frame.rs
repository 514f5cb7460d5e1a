//! Frames on a command connection.
//!
//! Client to worker, a command is a [`CommandHeader`] and its payload; worker to client, a
//! [`ReplyHeader`] and its payload. Both directions number their frames from 1, in the order sent,
//! and carry the low half of the number: the receiver checks that none is missing or repeated, and
//! a resumed session can tell what to send again.

use crate::codec::{DecodeError, Reader, Writer};
use crate::limits::MAX_FRAME;
use crate::names::ContextId;

/// What precedes a command's payload: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandHeader {
    /// Bytes of payload that follow.
    pub len: u32,
    /// Which command.
    pub op: u16,
    /// [`flags`], and command-specific bits from [`flags::FIRST_FREE`] on.
    pub flags: u16,
    /// The client's name for the context that is current in the calling thread; 0 for none.
    pub ctx: ContextId,
    /// Low half of the command's sequence number.
    pub seq: u32,
}

/// Bits of [`CommandHeader::flags`].
pub mod flags {
    /// The client waits for a reply to this command.
    pub const WANTS_REPLY: u16 = 1 << 0;
    /// The first bit that belongs to the commands.
    pub const FIRST_FREE: u16 = 1 << 8;
}

/// Command numbers from here on belong to the link itself, not to the driver.
pub const LINK_OPS: u16 = 0xff00;

/// Client to worker: all frames up to the sequence number in the payload (`u64`) have been
/// received. Not itself numbered, so it may be sent at any time.
pub const OP_ACKNOWLEDGE: u16 = LINK_OPS;

/// Client to worker: the client's process is ending; when the connection closes, so does the
/// session. Not numbered, and without a payload.
pub const OP_GOODBYE: u16 = LINK_OPS + 1;

/// What precedes a payload from the worker: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyHeader {
    /// Bytes of payload that follow.
    pub len: u32,
    /// What the frame is.
    pub kind: ReplyKind,
    /// Which notice; 0 in replies.
    pub code: u16,
    /// Low half of this frame's sequence number in its direction; 0 in an acknowledgement, which
    /// has none.
    pub seq: u32,
    /// Low half of the number of the last command that the worker has taken over: the client may
    /// forget it.
    pub taken: u32,
    /// Low half of the number of the command that a reply answers; 0 otherwise.
    pub answers: u32,
    /// A reply's CUresult; 0 otherwise.
    pub status: u32,
}

/// The kinds of frame a worker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyKind {
    /// The answer to a command with [`flags::WANTS_REPLY`].
    Reply,
    /// Something that no command asked for: device output, an asynchronous error.
    Notice,
    /// Only `taken` counts.
    Acknowledge,
}

impl CommandHeader {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 16;

    /// Appends the header.
    #[inline]
    pub fn encode(&self, writer: &mut Writer) {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.op.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.ctx.0.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.seq.to_le_bytes());
        writer.fixed(&bytes);
    }

    /// Reads a header and checks its length against [`MAX_FRAME`].
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] for a payload above [`MAX_FRAME`].
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<CommandHeader, DecodeError> {
        let mut reader = Reader::new(bytes);
        let header = CommandHeader {
            len: reader.u32()?,
            op: reader.u16()?,
            flags: reader.u16()?,
            ctx: reader.get()?,
            seq: reader.u32()?,
        };
        check_len(header.len)?;
        Ok(header)
    }
}

impl ReplyHeader {
    /// Size on the wire, in bytes.
    pub const SIZE: usize = 24;

    /// Appends the header.
    #[inline]
    pub fn encode(&self, writer: &mut Writer) {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[6..8].copy_from_slice(&self.code.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.seq.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.taken.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.answers.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.status.to_le_bytes());
        writer.fixed(&bytes);
    }

    /// Reads a header and checks its kind, and its length against [`MAX_FRAME`].
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] for a kind that does not exist, [`DecodeError::TooLong`] for a
    /// payload above [`MAX_FRAME`].
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<ReplyHeader, DecodeError> {
        let mut reader = Reader::new(bytes);
        let header = ReplyHeader {
            len: reader.u32()?,
            kind: match reader.u16()? {
                0 => ReplyKind::Reply,
                1 => ReplyKind::Notice,
                2 => ReplyKind::Acknowledge,
                value => {
                    return Err(DecodeError::Invalid {
                        what: "kind of reply",
                        value: value.into(),
                    });
                }
            },
            code: reader.u16()?,
            seq: reader.u32()?,
            taken: reader.u32()?,
            answers: reader.u32()?,
            status: reader.u32()?,
        };
        check_len(header.len)?;
        Ok(header)
    }
}

/// The full sequence number whose low half is `low`, nearest to `near`: the two are never 2^31
/// apart.
#[inline]
pub fn widen(low: u32, near: u64) -> u64 {
    let difference = low.wrapping_sub(near as u32).cast_signed();
    near.wrapping_add_signed(difference.into())
}

fn check_len(len: u32) -> Result<(), DecodeError> {
    if len as usize > MAX_FRAME {
        return Err(DecodeError::TooLong { found: len as usize, limit: MAX_FRAME });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn command_header_bytes() {
        let header =
            CommandHeader { len: 5, op: 0x0102, flags: 1, ctx: ContextId(7), seq: 0xa0b0_c0d0 };
        let mut writer = Writer::new();
        header.encode(&mut writer);
        assert_eq!(writer.as_slice(), [5, 0, 0, 0, 2, 1, 1, 0, 7, 0, 0, 0, 0xd0, 0xc0, 0xb0, 0xa0]);
        assert_eq!(CommandHeader::decode(writer.as_slice().try_into().unwrap()), Ok(header));
    }

    #[test]
    fn reply_header_bytes() {
        let header = ReplyHeader {
            len: 1,
            kind: ReplyKind::Notice,
            code: 3,
            seq: 4,
            taken: 5,
            answers: 0,
            status: 700,
        };
        let mut writer = Writer::new();
        header.encode(&mut writer);
        assert_eq!(writer.len(), ReplyHeader::SIZE);
        assert_eq!(writer.as_slice()[..8], [1, 0, 0, 0, 1, 0, 3, 0]);
        assert_eq!(ReplyHeader::decode(writer.as_slice().try_into().unwrap()), Ok(header));
    }

    #[test]
    fn an_overlong_frame_is_refused() {
        let mut writer = Writer::new();
        CommandHeader { len: MAX_FRAME as u32 + 1, op: 0, flags: 0, ctx: ContextId::NONE, seq: 1 }
            .encode(&mut writer);
        let header = CommandHeader::decode(writer.as_slice().try_into().unwrap());
        assert!(matches!(header, Err(DecodeError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn widening_finds_the_number(near in (1u64 << 33)..(u64::MAX / 2), offset in -(1i64 << 31)..(1i64 << 31)) {
            let number = near.wrapping_add_signed(offset);
            prop_assert_eq!(widen(number as u32, near), number);
        }
    }
}
