//! The worker's halves: commands in, replies and notices out.

use outboard_wire::frame::{
    CommandHeader, LINK_OPS, OP_ACKNOWLEDGE, OP_GOODBYE, ReplyHeader, ReplyKind, flags, widen,
};
use outboard_wire::{ContextId, Reader, Writer};

use crate::buffer::ReceiveBuffer;
use crate::window::{Layout, Window};
use crate::{Batch, ProtocolError, TooLong};

/// A command, as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command<'a> {
    /// Its number in the session's one order.
    pub seq: u64,
    /// Which command.
    pub op: u16,
    /// As in [`flags`].
    pub flags: u16,
    /// The client's name for the context current in the calling thread; 0 for none.
    pub ctx: ContextId,
    /// Its arguments, encoded.
    pub payload: &'a [u8],
    /// Whether anything that came after it is at hand.
    pub more: bool,
}

impl Command<'_> {
    /// Whether the client waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.flags & flags::WANTS_REPLY != 0
    }
}

/// Takes a client's bytes apart.
#[derive(Debug)]
pub struct Incoming {
    buffer: ReceiveBuffer,
    taken: u64,
    acknowledged: u64,
    leaving: bool,
}

/// Makes the bytes of replies and notices.
#[derive(Debug)]
pub struct Outgoing {
    window: Window,
    told: u64,
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming::new()
    }
}

impl Incoming {
    /// A half that has received nothing.
    pub const fn new() -> Incoming {
        Incoming { buffer: ReceiveBuffer::new(), taken: 0, acknowledged: 0, leaving: false }
    }

    /// Where received bytes go.
    pub fn buffer(&mut self) -> &mut ReceiveBuffer {
        &mut self.buffer
    }

    /// Number of the last command returned by [`next_command`](Self::next_command).
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// The client has received the worker's frames up to this number.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The client has said goodbye.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// After a cut: forgets the frame that was cut in two, and whatever came after command `taken`,
    /// which the client sends again.
    pub fn resume(&mut self, taken: u64) {
        self.buffer = ReceiveBuffer::new();
        self.taken = taken.min(self.taken);
    }

    /// The header of the next command, if all of it is there.
    pub fn peek(&self) -> Option<CommandHeader> {
        let unread = self.buffer.unread();
        let header = CommandHeader::decode(unread.first_chunk()?).ok()?;
        (unread.len() - CommandHeader::SIZE >= header.len as usize).then_some(header)
    }

    /// The next command in order, if its bytes are all there.
    ///
    /// # Errors
    /// [`ProtocolError`] if the header is malformed or out of sequence. The session cannot go on.
    pub fn next_command(&mut self) -> Result<Option<Command<'_>>, ProtocolError> {
        loop {
            let Some(head) = self.buffer.unread().first_chunk() else { return Ok(None) };
            let header = CommandHeader::decode(head)?;
            let len = header.len as usize;
            let behind = self.buffer.unread().len() - CommandHeader::SIZE;
            if behind < len {
                return Ok(None);
            }
            if header.op >= LINK_OPS {
                self.buffer.consume(CommandHeader::SIZE);
                let mut reader = Reader::new(self.buffer.take(len).unwrap_or_default());
                match header.op {
                    OP_ACKNOWLEDGE => self.acknowledged = self.acknowledged.max(reader.u64()?),
                    OP_GOODBYE => self.leaving = true,
                    op => return Err(ProtocolError::LinkCommand { op }),
                }
                reader.finish()?;
                continue;
            }
            let seq = widen(header.seq, self.taken);
            let expected = self.taken + 1;
            if seq != expected {
                return Err(ProtocolError::Sequence { expected, found: seq });
            }
            self.taken = seq;
            self.buffer.consume(CommandHeader::SIZE);
            let payload = self.buffer.take(len).unwrap_or_default();
            let (CommandHeader { op, flags, ctx, .. }, more) = (header, behind > len);
            return Ok(Some(Command { seq, op, flags, ctx, payload, more }));
        }
    }
}

impl Outgoing {
    /// An empty half; `retain` keeps frames until the client has received them.
    pub fn new(retain: bool) -> Outgoing {
        Outgoing {
            window: Window::new(
                Layout {
                    header: ReplyHeader::SIZE,
                    seq_at: 8,
                    unnumbered: ReplyKind::Acknowledge as u16,
                },
                retain,
            ),
            told: 0,
        }
    }

    /// Answers command `answers`; `taken` is the last command taken over ([`Incoming::taken`]).
    ///
    /// # Errors
    /// [`TooLong`] if the answer does not fit into a frame.
    pub fn reply(
        &mut self,
        answers: u64,
        status: u32,
        taken: u64,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<(), TooLong> {
        self.told = self.told.max(taken);
        let header = |writer: &mut Writer, seq| {
            let (kind, taken, answers) = (ReplyKind::Reply, taken as u32, answers as u32);
            ReplyHeader { len: 0, kind, code: 0, seq, taken, answers, status }.encode(writer);
        };
        self.window.push(true, header, encode).map(drop)
    }

    /// Says something that no command asked for.
    ///
    /// # Errors
    /// [`TooLong`] if the notice does not fit into a frame.
    pub fn notice(
        &mut self,
        code: u16,
        taken: u64,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<(), TooLong> {
        self.told = self.told.max(taken);
        let header = |writer: &mut Writer, seq| {
            let kind = ReplyKind::Notice;
            ReplyHeader { len: 0, kind, code, seq, taken: taken as u32, answers: 0, status: 0 }
                .encode(writer);
        };
        self.window.push(true, header, encode).map(drop)
    }

    /// Says only how far commands were taken over.
    pub fn acknowledge(&mut self, taken: u64) {
        self.told = self.told.max(taken);
        let header = |writer: &mut Writer, seq| {
            let kind = ReplyKind::Acknowledge;
            ReplyHeader { len: 0, kind, code: 0, seq, taken: taken as u32, answers: 0, status: 0 }
                .encode(writer);
        };
        let fits = self.window.push(false, header, |_| ());
        debug_assert!(fits.is_ok(), "no bytes fit into a frame");
    }

    /// The bytes of a frame that says only how far commands were taken over. It may be written
    /// before the frames that are pending.
    pub fn acknowledgement(&mut self, taken: u64) -> Vec<u8> {
        self.told = self.told.max(taken);
        let mut writer = Writer::new();
        let (kind, taken) = (ReplyKind::Acknowledge, taken as u32);
        ReplyHeader { len: 0, kind, code: 0, seq: 0, taken, answers: 0, status: 0 }
            .encode(&mut writer);
        writer.into_vec()
    }

    /// The number of the last command that the client has been told is taken over.
    pub fn told(&self) -> u64 {
        self.told
    }

    /// Bytes appended and not yet [`take`](Self::take)n.
    pub fn pending_bytes(&self) -> usize {
        self.window.pending_bytes()
    }

    /// Bytes written and kept for a resume.
    pub fn retained_bytes(&self) -> usize {
        self.window.kept_bytes()
    }

    /// Everything pending, to be written next. Return it with [`done`](Self::done).
    pub fn take(&mut self) -> Option<Batch> {
        self.window.take()
    }

    /// Takes a batch back after it was written, in whole or, before a cut, in part.
    pub fn done(&mut self, batch: Batch) {
        self.window.done(batch);
    }

    /// The client has received the frames up to `received` ([`Incoming::acknowledged`]).
    ///
    /// # Errors
    /// [`ProtocolError::Acknowledged`] if so many frames were never sent.
    pub fn acknowledged(&mut self, received: u64) -> Result<(), ProtocolError> {
        self.window.acknowledge(received)
    }

    /// After a cut, with a client that has received the frames up to `received`: all later ones are
    /// pending again.
    ///
    /// # Errors
    /// [`ProtocolError::Acknowledged`] if so many frames were never sent.
    pub fn resume(&mut self, received: u64) -> Result<(), ProtocolError> {
        self.window.resume(received)
    }
}
