//! Records of the peer, and what is in them.

use std::io;
use std::ops::Range;

use rustls::Error;

use super::keys::{HEADER, Key, Kind, LONGEST, failure, wrong};

/// Room for records that are decrypted here: those in which a reader wants few bytes.
const ROOM: usize = 32 << 10;
/// A reader that wants so many gets them where it wants them: they are received and decrypted
/// there.
const MANY: usize = 2 * ROOM;

/// Messages that come after the handshake.
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// The alert that ends a direction.
const CLOSE_NOTIFY: u8 = 0;

/// What the peer sends.
pub(super) struct Incoming {
    key: Key,
    bytes: Vec<u8>,
    /// Where decrypted bytes lie that no reader has taken yet.
    plain: Range<usize>,
    /// Bytes that are not decrypted yet: those between `start` and `end`.
    start: usize,
    end: usize,
    /// The peer will send no more.
    ended: bool,
}

/// What a record is beside bytes for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    End,
    /// The next record has another key; the peer may want one of this side, too.
    NextKey {
        wants_one: bool,
    },
}

impl Incoming {
    /// Of which `plain` has been decrypted already, and `rest` received.
    pub(super) fn new(key: Key, plain: Vec<u8>, rest: &[u8], ended: bool) -> Incoming {
        let (start, mut bytes) = (plain.len(), plain);
        bytes.extend_from_slice(rest);
        let end = bytes.len();
        bytes.resize(end.max(ROOM), 0);
        Incoming { key, bytes, plain: 0..start, start, end, ended }
    }

    /// Fills `room` from what was received: all that the peer's records so far have in them.
    /// Returns how many bytes those are; none may also be the [end](Self::is_over). `next_key`
    /// makes another key, and is told whether the peer wants one of this side.
    pub(super) fn take(
        &mut self,
        room: &mut [u8],
        mut next_key: impl FnMut(bool) -> io::Result<Key>,
    ) -> io::Result<usize> {
        let mut filled = 0;
        loop {
            let count = self.plain.len().min(room.len() - filled);
            let from = self.plain.start;
            room[filled..filled + count].copy_from_slice(&self.bytes[from..from + count]);
            self.plain.start += count;
            filled += count;
            if filled == room.len() || self.ended {
                return Ok(filled);
            }
            let record = whole(&self.bytes[self.start..self.end])?;
            let Some(length) = record else { return Ok(filled) };
            let at = self.start;
            let (kind, count) = self.key.open(&mut self.bytes[at..at + length], 0)?;
            self.start += length;
            match told(kind, &self.bytes[at..at + count])? {
                Told::Nothing if kind == Kind::Data => self.plain = at..at + count,
                told => self.heed(told, &mut next_key)?,
            }
        }
    }

    /// As [`take`](Self::take), after receiving with `read`. All that was received before must have
    /// been taken.
    pub(super) fn receive(
        &mut self,
        room: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
        mut next_key: impl FnMut(bool) -> io::Result<Key>,
    ) -> io::Result<usize> {
        debug_assert!(self.plain.is_empty());
        if room.len() < MANY {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let count = read(&mut self.bytes[self.end..])?;
            self.ended |= count == 0;
            self.end += count;
            return self.take(room, next_key);
        }
        // The first record may have begun to come.
        let begun = self.end - self.start;
        let count = read(&mut room[begun..])?;
        self.ended |= count == 0;
        if self.ended {
            return Ok(0);
        }
        room[..begun].copy_from_slice(&self.bytes[self.start..self.end]);
        // Plaintext is shorter than its record: it never reaches the next one.
        let (mut at, end, mut filled) = (0, begun + count, 0);
        while let Some(length) = whole(&room[at..end])?.filter(|_| !self.ended) {
            let (kind, count) = self.key.open(&mut room[filled..at + length], at - filled)?;
            at += length;
            match told(kind, &room[filled..filled + count])? {
                Told::Nothing if kind == Kind::Data => filled += count,
                told => self.heed(told, &mut next_key)?,
            }
        }
        (self.start, self.end) = (0, end - at);
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        self.bytes[..self.end].copy_from_slice(&room[at..end]);
        Ok(filled)
    }

    fn heed(
        &mut self,
        told: Told,
        next_key: &mut impl FnMut(bool) -> io::Result<Key>,
    ) -> io::Result<()> {
        match told {
            Told::Nothing => {}
            Told::End => self.ended = true,
            Told::NextKey { wants_one } => self.key = next_key(wants_one)?,
        }
        Ok(())
    }

    /// Whether a read would find something without receiving: bytes, the end, or a whole record.
    pub(super) fn is_readable(&self) -> bool {
        self.ended
            || !self.plain.is_empty()
            || !matches!(whole(&self.bytes[self.start..self.end]), Ok(None))
    }

    /// The peer has ended the stream, by an alert or by closing the connection.
    pub(super) fn is_over(&self) -> bool {
        self.ended
    }

    /// Whether all that was received has been read.
    pub(super) fn is_drained(&self) -> bool {
        self.start == self.end && self.plain.is_empty()
    }
}

/// The length of the first record of these bytes, if it is there as a whole.
fn whole(bytes: &[u8]) -> io::Result<Option<usize>> {
    let [_, _, _, high, low, rest @ ..] = bytes else { return Ok(None) };
    match usize::from(u16::from_be_bytes([*high, *low])) {
        length if length > LONGEST => Err(wrong("a record of the peer is too long")),
        length => Ok((rest.len() >= length).then_some(HEADER + length)),
    }
}

/// What the plaintext of a record says of TLS itself.
fn told(kind: Kind, plain: &[u8]) -> io::Result<Told> {
    match (kind, plain) {
        (Kind::Data, _) => Ok(Told::Nothing),
        (Kind::Alert, [_, CLOSE_NOTIFY]) => Ok(Told::End),
        (Kind::Alert, [_, reason]) => Err(failure(Error::AlertReceived((*reason).into()))),
        (Kind::Handshake, messages) => after_handshake(messages),
        _ => Err(wrong("the peer says what has no place here")),
    }
}

/// What messages that come after the handshake say. Tickets, with which a session could be resumed,
/// are passed over.
fn after_handshake(mut messages: &[u8]) -> io::Result<Told> {
    while let [NEW_SESSION_TICKET, high, middle, low, rest @ ..] = messages {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        messages = rest.get(length..).ok_or_else(|| wrong("a ticket is cut off"))?;
    }
    match messages {
        [] => Ok(Told::Nothing),
        [KEY_UPDATE, 0, 0, 1, wants @ (0 | 1)] => Ok(Told::NextKey { wants_one: *wants == 1 }),
        _ => Err(wrong("the peer says what has no place here")),
    }
}
