//! The client's halves: commands out, replies and notices in.

use std::mem::MaybeUninit;

use outboard_wire::frame::{
    CommandHeader, LINK_OPS, OP_ACKNOWLEDGE, OP_GOODBYE, ReplyHeader, ReplyKind, flags, widen,
};
use outboard_wire::{ContextId, Writer};
use rustc_hash::FxHashMap;

use crate::buffer::ReceiveBuffer;
use crate::window::{Layout, Window};
use crate::{Batch, ProtocolError, TooLong};

/// Makes the bytes of commands.
#[derive(Debug)]
pub struct Outgoing {
    window: Window,
}

/// Takes the worker's bytes apart.
#[derive(Debug)]
pub struct Incoming {
    buffer: ReceiveBuffer,
    received: u64,
    taken: u64,
    open: Option<Open>,
}

/// An answer whose bytes go past the buffer, to where they belong.
#[derive(Debug)]
struct Open {
    /// What came before its bytes.
    head: [u8; Incoming::HEAD],
    /// How many bytes it has, and how many have come.
    len: usize,
    come: usize,
    /// What it says of commands.
    taken: u64,
}

/// What the worker said.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The answer to a command.
    Reply {
        /// The command's number.
        answers: u64,
        /// A CUresult.
        status: u32,
        /// What the command returns.
        payload: &'a [u8],
    },
    /// Something that no command asked for.
    Notice {
        /// Which notice.
        code: u16,
        /// What it says.
        payload: &'a [u8],
    },
}

/// The commands that wait for a reply, each with what its owner needs to hand the reply on.
#[derive(Debug)]
pub struct PendingCalls<T> {
    calls: FxHashMap<u64, T>,
}

impl Outgoing {
    /// An empty half; `retain` keeps frames until the worker has taken them over, so that the
    /// session can [`resume`](Self::resume).
    pub fn new(retain: bool) -> Outgoing {
        Outgoing {
            window: Window::new(
                Layout { header: CommandHeader::SIZE, seq_at: 12, unnumbered: LINK_OPS },
                retain,
            ),
        }
    }

    /// Appends a command and returns its number.
    ///
    /// `flags` is as in [`flags`]; `ctx` names the context current in the calling thread, 0 for
    /// none. A payload that is too long, or whose `encode` panics, leaves nothing behind.
    ///
    /// # Errors
    /// [`TooLong`] if the payload does not fit into a frame.
    #[inline]
    pub fn push(
        &mut self,
        op: u16,
        flags: u16,
        ctx: ContextId,
        encode: impl FnOnce(&mut Writer),
    ) -> Result<u64, TooLong> {
        self.window.push(
            true,
            |writer, seq| CommandHeader { len: 0, op, flags, ctx, seq }.encode(writer),
            encode,
        )
    }

    /// Appends an acknowledgement of the worker's frames up to `received`.
    pub fn acknowledge(&mut self, received: u64) {
        let header = |writer: &mut Writer, seq| {
            CommandHeader { len: 0, op: OP_ACKNOWLEDGE, flags: 0, ctx: ContextId::NONE, seq }
                .encode(writer)
        };
        let fits = self.window.push(false, header, |writer| writer.u64(received));
        debug_assert!(fits.is_ok(), "eight bytes fit into a frame");
    }

    /// Says that this process is ending, so that the worker need not keep the session when the
    /// connection closes.
    pub fn goodbye(&mut self) {
        let header = |writer: &mut Writer, seq| {
            CommandHeader { len: 0, op: OP_GOODBYE, flags: 0, ctx: ContextId::NONE, seq }
                .encode(writer)
        };
        let fits = self.window.push(false, header, |_| ());
        debug_assert!(fits.is_ok(), "no bytes fit into a frame");
    }

    /// Bytes appended and not yet [`take`](Self::take)n.
    #[inline]
    pub fn pending_bytes(&self) -> usize {
        self.window.pending_bytes()
    }

    /// Memory that the next command will be encoded into, if it fits there.
    #[inline]
    pub fn room(&mut self) -> &[MaybeUninit<u8>] {
        self.window.room()
    }

    /// Number of the last command.
    pub fn last(&self) -> u64 {
        self.window.last()
    }

    /// How many commands the worker has not taken over, as far as known.
    pub fn unacknowledged(&self) -> u64 {
        self.window.last() - self.window.taken()
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

    /// The worker has taken over the commands up to `taken` ([`Incoming::taken`]).
    ///
    /// # Errors
    /// [`ProtocolError::Acknowledged`] if so many commands were never sent.
    pub fn acknowledged(&mut self, taken: u64) -> Result<(), ProtocolError> {
        self.window.acknowledge(taken)
    }

    /// After a cut, with a worker that has taken over the commands up to `taken`: all later ones
    /// are pending again. Batches taken before must have been returned.
    ///
    /// # Errors
    /// [`ProtocolError::Acknowledged`] if so many commands were never sent.
    pub fn resume(&mut self, taken: u64) -> Result<(), ProtocolError> {
        self.window.resume(taken)
    }
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming::new()
    }
}

impl Incoming {
    /// A half that has received nothing.
    pub const fn new() -> Incoming {
        Incoming { buffer: ReceiveBuffer::new(), received: 0, taken: 0, open: None }
    }

    /// Where received bytes go.
    pub fn buffer(&mut self) -> &mut ReceiveBuffer {
        &mut self.buffer
    }

    /// Number of the last frame received from the worker: what to [`Outgoing::acknowledge`].
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Number of the last command that the worker has taken over.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// After a cut: forgets the frame that was cut in two.
    pub fn resume(&mut self) {
        self.buffer = ReceiveBuffer::new();
        self.open = None;
    }

    /// The header of the frame at the front, checked before its payload is waited for: what is no
    /// frame may promise much that never comes.
    fn front(&self) -> Result<Option<ReplyHeader>, ProtocolError> {
        let Some(head) = self.buffer.unread().first_chunk() else { return Ok(None) };
        let header = ReplyHeader::decode(head)?;
        if header.kind != ReplyKind::Acknowledge {
            let (expected, found) = (self.received + 1, widen(header.seq, self.received));
            if found != expected {
                return Err(ProtocolError::Sequence { expected, found });
            }
        }
        Ok(Some(header))
    }

    /// Bytes in front of those of an answer that can be [opened](Self::open).
    pub const HEAD: usize = ReplyHeader::SIZE + size_of::<u32>();

    /// Opens the answer to command `answers`, if exactly its [head](Self::HEAD) has been received,
    /// it tells of success, and what it returns is one string of `len` bytes. Whether it is open
    /// now.
    ///
    /// Its bytes then are to be received elsewhere than in the buffer; there is no event before all
    /// of them [have come](Self::came_elsewhere).
    ///
    /// # Errors
    /// [`ProtocolError`] if the header is malformed or out of sequence.
    pub fn open(&mut self, answers: u64, len: usize) -> Result<bool, ProtocolError> {
        let Ok(head) = <[u8; Self::HEAD]>::try_from(self.buffer.unread()) else {
            return Ok(false);
        };
        let Some(header) = self.front()? else { return Ok(false) };
        let taken = self.taken.max(widen(header.taken, self.taken));
        let is_it = header.kind == ReplyKind::Reply
            && widen(header.answers, taken) == answers
            && header.status == 0
            && header.len as usize == size_of::<u32>() + len
            && u32::try_from(len).is_ok_and(|len| head.ends_with(&len.to_le_bytes()));
        if is_it && len > 0 {
            self.buffer.consume(Self::HEAD);
            self.open = Some(Open { head, len, come: 0, taken });
        }
        Ok(self.open.is_some())
    }

    /// `count` more bytes of the open answer are where they belong. Whether that is all of it: then
    /// it has been received.
    ///
    /// # Panics
    /// If no answer is open, or it has not as many.
    pub fn came_elsewhere(&mut self, count: usize) -> bool {
        let open = self.open.as_mut().expect("bytes came for no answer");
        assert!(count <= open.len - open.come, "more bytes came than the answer has");
        open.come += count;
        if open.come < open.len {
            return false;
        }
        self.received += 1;
        self.taken = open.taken;
        self.open = None;
        true
    }

    /// How many bytes of the open answer have come, if there is one.
    pub fn open_bytes(&self) -> Option<usize> {
        self.open.as_ref().map(|open| open.come)
    }

    /// Takes back what has come of the open answer: it goes on in the buffer, as any other.
    ///
    /// # Panics
    /// If an answer is open of which another number of bytes have come.
    pub fn close(&mut self, come: &[u8]) {
        let Some(open) = self.open.take() else { return };
        assert_eq!(come.len(), open.come, "other bytes are taken back than came");
        // It was empty when the answer was opened, and nothing has gone there since.
        self.buffer.push(&open.head);
        self.buffer.push(come);
    }

    /// The next event, if its bytes are all there.
    ///
    /// # Errors
    /// [`ProtocolError`] if the header is malformed or out of sequence. The session cannot go on.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, ProtocolError> {
        if self.open.is_some() {
            return Ok(None);
        }
        loop {
            let Some(header) = self.front()? else { return Ok(None) };
            let is_numbered = header.kind != ReplyKind::Acknowledge;
            if self.buffer.unread().len() < ReplyHeader::SIZE + header.len as usize {
                return Ok(None);
            }
            self.received += u64::from(is_numbered);
            self.taken = self.taken.max(widen(header.taken, self.taken));
            let answers = widen(header.answers, self.taken);
            self.buffer.consume(ReplyHeader::SIZE);
            if !is_numbered {
                self.buffer.consume(header.len as usize);
                continue;
            }
            let payload = self.buffer.take(header.len as usize).unwrap_or_default();
            return Ok(Some(match header.kind {
                ReplyKind::Reply => Event::Reply { answers, status: header.status, payload },
                _ => Event::Notice { code: header.code, payload },
            }));
        }
    }
}

impl<T> Default for PendingCalls<T> {
    fn default() -> PendingCalls<T> {
        PendingCalls { calls: FxHashMap::default() }
    }
}

impl<T> PendingCalls<T> {
    /// The command `seq` waits.
    pub fn insert(&mut self, seq: u64, owner: T) {
        self.calls.insert(seq, owner);
    }

    /// A reply to command `answers` came: whom it belongs to.
    ///
    /// # Errors
    /// [`ProtocolError::Unasked`] if no call waits for an answer to that command.
    pub fn complete(&mut self, answers: u64) -> Result<T, ProtocolError> {
        self.calls.remove(&answers).ok_or(ProtocolError::Unasked { answers })
    }

    /// What is found in any one of those that wait.
    pub fn find<'a, U>(&'a self, look: impl FnMut(&'a T) -> Option<U>) -> Option<U> {
        self.calls.values().find_map(look)
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Takes all that wait, when no reply will come.
    pub fn drain(&mut self) -> impl Iterator<Item = (u64, T)> {
        self.calls.drain()
    }
}

/// Flags of a call: a command that waits for its reply.
pub const CALL: u16 = flags::WANTS_REPLY;
