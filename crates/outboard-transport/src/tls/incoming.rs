//! Records of the peer, and what is in them.

use std::io;
use std::ops::Range;

use rustls::Error;

use super::keys::{HEADER, Key, Kind, failure, wrong};

/// Room for records at first; a stream that fills it gets more ...
const FIRST_ROOM: usize = 32 << 10;
/// ... up to this.
const MOST_ROOM: usize = 512 << 10;

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

/// What a record was beside bytes for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// All records so far are decrypted, or the reader's buffer is full.
    Nothing,
    /// The next record has another key; the peer may want one of this side, too.
    NextKey { wants_one: bool },
}

impl Incoming {
    /// Of which `plain` has been decrypted already, and `rest` received.
    pub(super) fn new(key: Key, plain: Vec<u8>, rest: &[u8], ended: bool) -> Incoming {
        let (start, mut bytes) = (plain.len(), plain);
        bytes.extend_from_slice(rest);
        let end = bytes.len();
        bytes.resize(end.max(FIRST_ROOM), 0);
        Incoming { key, bytes, plain: 0..start, start, end, ended }
    }

    /// From the next record on, the peer's key is this one.
    pub(super) fn change_key(&mut self, key: Key) {
        self.key = key;
    }

    /// The length of the first record, if it is there as a whole.
    fn whole(&self) -> Option<usize> {
        match &self.bytes[self.start..self.end] {
            [_, _, _, high, low, rest @ ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                (rest.len() >= length).then_some(HEADER + length)
            }
            _ => None,
        }
    }

    /// Fills `room` from `filled` on with bytes received so far, decrypting no more than needed.
    pub(super) fn take(&mut self, room: &mut [u8], filled: &mut usize) -> io::Result<Told> {
        loop {
            let count = self.plain.len().min(room.len() - *filled);
            let from = self.plain.start;
            room[*filled..*filled + count].copy_from_slice(&self.bytes[from..from + count]);
            self.plain.start += count;
            *filled += count;
            if *filled == room.len() || self.ended {
                return Ok(Told::Nothing);
            }
            let Some(length) = self.whole() else { return Ok(Told::Nothing) };
            let at = self.start;
            let (kind, count) = self.key.open(&mut self.bytes[at..at + length])?;
            self.start += length;
            self.plain = at + HEADER..at + HEADER + count;
            if kind != Kind::Data {
                let told = self.not_data(kind)?;
                self.plain = 0..0;
                if told != Told::Nothing {
                    return Ok(told);
                }
            }
        }
    }

    /// A record of TLS itself.
    fn not_data(&mut self, kind: Kind) -> io::Result<Told> {
        match (kind, &self.bytes[self.plain.clone()]) {
            (Kind::Alert, [_, CLOSE_NOTIFY]) => {
                self.ended = true;
                Ok(Told::Nothing)
            }
            (Kind::Alert, [_, reason]) => Err(failure(Error::AlertReceived((*reason).into()))),
            (Kind::Handshake, messages) => after_handshake(messages),
            _ => Err(wrong("the peer says what has no place here")),
        }
    }

    /// Receives with `read` into room for some records; returns how many bytes. All that was
    /// decrypted must have been taken.
    pub(super) fn receive(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        debug_assert!(self.plain.is_empty());
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let count = read(&mut self.bytes[self.end..])?;
        self.end += count;
        if self.end == self.bytes.len() && self.end < MOST_ROOM {
            self.bytes.resize(2 * self.end, 0);
        }
        Ok(count)
    }

    /// Whether a read would find something without receiving: bytes, the end, or a whole record.
    pub(super) fn is_readable(&self) -> bool {
        self.ended || !self.plain.is_empty() || self.whole().is_some()
    }

    /// The peer has ended the stream, by an alert or by closing the connection.
    pub(super) fn is_over(&self) -> bool {
        self.ended
    }

    /// No more comes.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Whether all that was received has been read.
    pub(super) fn is_drained(&self) -> bool {
        self.start == self.end && self.plain.is_empty()
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
