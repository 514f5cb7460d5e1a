//! A rustls connection with the bytes that go into it and come out of it.

use std::io::{self, IoSlice};

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};

use super::config::Fingerprint;
use super::sealed::{OVERHEAD, RECORD, Sealed};

/// Which side of the connection this is.
pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// One direction of reading and the state of both: rustls keeps them in one object.
pub(super) struct Records {
    side: Side,
    /// Bytes of the peer that are not decrypted yet: those between `start` and `end`.
    incoming: Vec<u8>,
    start: usize,
    end: usize,
    /// Decrypted bytes that did not fit into the reader's buffer, from `plain_at` on.
    plain: Vec<u8>,
    plain_at: usize,
    /// Records that rustls made by itself, to go out before all others.
    control: Vec<u8>,
    /// The peer will send no more.
    ended: bool,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something was done; there may be more.
    Done,
    /// The handshake waits for bytes of the peer.
    Blocked,
    /// The handshake is over, and nothing more can be decrypted.
    Open,
}

/// Room for records at first; a stream that fills it gets more ...
const FIRST_ROOM: usize = 32 << 10;
/// ... up to this.
const MOST_ROOM: usize = 512 << 10;
/// Plaintext that is encrypted for one write.
const BATCH: usize = 16 * RECORD;

/// An error of rustls as an error of a stream.
pub(super) fn failure(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Where decrypted bytes go: first into the reader's buffer, then into `rest`.
struct Place<'a> {
    room: &'a mut [u8],
    filled: &'a mut usize,
    rest: &'a mut Vec<u8>,
}

impl Place<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let free = &mut self.room[*self.filled..];
        // Bytes kept earlier come first.
        let count = if self.rest.is_empty() { bytes.len().min(free.len()) } else { 0 };
        free[..count].copy_from_slice(&bytes[..count]);
        *self.filled += count;
        self.rest.extend_from_slice(&bytes[count..]);
    }
}

/// Bytes to be encrypted, and where to.
struct Sealing<'a> {
    plain: &'a [u8],
    to: &'a mut Sealed,
}

/// Does the next step that rustls asks for; returns how many incoming bytes it used up, and the
/// result.
fn handle<D>(
    status: UnbufferedStatus<'_, '_, D>,
    place: &mut Place<'_>,
    control: &mut Vec<u8>,
    ended: &mut bool,
    sealing: Option<Sealing<'_>>,
) -> (usize, io::Result<Step>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(failure(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Done),
                Some(Ok(record)) => {
                    discard += record.discard;
                    place.put(record.payload);
                }
                Some(Err(error)) => break Err(failure(error)),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => encode(control, |room| data.encode(room)),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It is written before anything else is.
            data.done();
            Ok(Step::Done)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
        Ok(ConnectionState::WriteTraffic(mut traffic)) => match sealing {
            None => Ok(Step::Open),
            Some(Sealing { plain, to }) => {
                let wants = |error: &EncryptError| match error {
                    EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => {
                        Some(*required_size)
                    }
                    EncryptError::EncryptExhausted => None,
                };
                let sealed = to.seal(plain.len(), |room| traffic.encrypt(plain, room), wants);
                sealed.map(|()| Step::Open).map_err(io::Error::other)
            }
        },
        Ok(ConnectionState::PeerClosed) => {
            *ended = true;
            Ok(Step::Done)
        }
        Ok(ConnectionState::Closed) => {
            *ended = true;
            if sealing.is_some() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(Step::Open) }
        }
        Ok(other) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("TLS: not expected: {other:?}")))
        }
    };
    (discard, step)
}

/// Appends a record that rustls has made.
fn encode(
    control: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> io::Result<Step> {
    let before = control.len();
    let mut room = RECORD + OVERHEAD;
    loop {
        control.resize(before + room, 0);
        match encode(&mut control[before..]) {
            Ok(count) => {
                control.truncate(before + count);
                return Ok(Step::Done);
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size }))
                if required_size > room =>
            {
                room = required_size;
            }
            Err(error) => {
                control.truncate(before);
                return Err(io::Error::other(error));
            }
        }
    }
}

impl Records {
    pub(super) fn new(side: Side) -> Records {
        Records {
            side,
            incoming: vec![0; FIRST_ROOM],
            start: 0,
            end: 0,
            plain: Vec::new(),
            plain_at: 0,
            control: Vec::new(),
            ended: false,
        }
    }

    /// Has rustls do one thing.
    fn step(
        &mut self,
        room: &mut [u8],
        filled: &mut usize,
        sealing: Option<Sealing<'_>>,
    ) -> io::Result<Step> {
        let Records { side, incoming, start, end, plain, control, ended, .. } = self;
        let bytes = &mut incoming[*start..*end];
        let mut place = Place { room, filled, rest: plain };
        let (discard, step) = match side {
            Side::Client(side) => {
                handle(side.process_tls_records(bytes), &mut place, control, ended, sealing)
            }
            Side::Server(side) => {
                handle(side.process_tls_records(bytes), &mut place, control, ended, sealing)
            }
        };
        *start += discard;
        if start == end {
            (*start, *end) = (0, 0);
        }
        step
    }

    /// The next thing in a handshake. What is to be sent is in `control` then.
    pub(super) fn shake_hands(&mut self) -> io::Result<Step> {
        self.step(&mut [], &mut 0, None)
    }

    /// The fingerprint of the certificate that the peer has shown.
    pub(super) fn certificate_of_peer(&self) -> Option<Fingerprint> {
        let chain = match &self.side {
            Side::Client(connection) => connection.peer_certificates(),
            Side::Server(connection) => connection.peer_certificates(),
        };
        chain.and_then(|chain| chain.first()).map(|first| Fingerprint::of(first))
    }

    /// The peer's first bytes, if TLS cannot begin with them.
    pub(super) fn in_the_clear(&self) -> Option<&[u8]> {
        let said = &self.incoming[self.start..self.end];
        // Types of records: 20 to 24.
        said.first().is_some_and(|first| !(20..=24).contains(first)).then_some(said)
    }

    /// Takes what rustls wants to have sent.
    pub(super) fn take_control(&mut self, to: &mut Sealed) {
        if !self.control.is_empty() {
            to.append(&self.control);
            self.control.clear();
        }
    }

    /// Takes the alert with which rustls answers what it has just refused.
    pub(super) fn take_alert(&mut self, to: &mut Sealed) {
        // It goes wrong again once the alert is there.
        while self.control.is_empty() && matches!(self.shake_hands(), Ok(Step::Done)) {}
        self.take_control(to);
    }

    /// Fills `room` with bytes received so far, decrypting no more than needed; returns how many.
    pub(super) fn take(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut filled = (self.plain.len() - self.plain_at).min(room.len());
        room[..filled].copy_from_slice(&self.plain[self.plain_at..self.plain_at + filled]);
        self.plain_at += filled;
        if self.plain_at == self.plain.len() {
            self.plain.clear();
            self.plain_at = 0;
        }
        while filled < room.len() && self.start < self.end && !self.ended {
            if self.step(room, &mut filled, None)? != Step::Done {
                break;
            }
        }
        Ok(filled)
    }

    /// Receives with `read` into room for some records; returns how many bytes.
    pub(super) fn receive(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.start > 0 {
            self.incoming.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let count = read(&mut self.incoming[self.end..])?;
        self.end += count;
        if self.end == self.incoming.len() && self.end < MOST_ROOM {
            self.incoming.resize(2 * self.end, 0);
        }
        Ok(count)
    }

    /// Whether a read would find something without receiving: bytes, the end, or a whole record.
    pub(super) fn is_readable(&self) -> bool {
        let waiting = &self.incoming[self.start..self.end];
        let whole = || match waiting {
            [_, _, _, high, low, rest @ ..] => {
                rest.len() >= usize::from(u16::from_be_bytes([*high, *low]))
            }
            _ => false,
        };
        self.ended || self.plain_at < self.plain.len() || whole()
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
        self.start == self.end && self.plain_at == self.plain.len()
    }

    /// Encrypts bytes of `buffers` after the first `skip`, at most little more than a batch;
    /// returns how many. Keeps what rustls decrypts on the way.
    pub(super) fn seal(
        &mut self,
        buffers: &[IoSlice<'_>],
        skip: usize,
        to: &mut Sealed,
    ) -> io::Result<usize> {
        self.take_control(to);
        let before = to.untold;
        self.seal_some(buffers, skip, to)?;
        Ok(to.untold - before)
    }

    fn seal_some(
        &mut self,
        buffers: &[IoSlice<'_>],
        skip: usize,
        to: &mut Sealed,
    ) -> io::Result<()> {
        let mut skip = skip;
        let mut left = BATCH;
        let mut gathered = Vec::new();
        for (index, buffer) in buffers.iter().enumerate() {
            let mut bytes: &[u8] = buffer;
            let passed = skip.min(bytes.len());
            skip -= passed;
            bytes = &bytes[passed..];
            // Short buffers share a record with the next ones.
            let last = index + 1 == buffers.len();
            if !gathered.is_empty() || (bytes.len() < RECORD && !last) {
                let count = bytes.len().min(RECORD - gathered.len());
                gathered.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                if gathered.len() < RECORD && !last {
                    continue;
                }
                self.seal_all(&gathered, to)?;
                left = left.saturating_sub(gathered.len());
                gathered.clear();
            }
            let count = bytes.len().min(left);
            if count > 0 {
                self.seal_all(&bytes[..count], to)?;
                left -= count;
            }
            if left == 0 || count < bytes.len() {
                return Ok(());
            }
        }
        if gathered.is_empty() { Ok(()) } else { self.seal_all(&gathered, to) }
    }

    /// Encrypts all of it.
    fn seal_all(&mut self, plain: &[u8], to: &mut Sealed) -> io::Result<()> {
        let mut filled = 0;
        loop {
            let step = self.step(&mut [], &mut filled, Some(Sealing { plain, to }))?;
            self.take_control(to);
            match step {
                Step::Open => return Ok(()),
                Step::Done => {}
                Step::Blocked => return Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// The alert that ends the stream.
    pub(super) fn seal_the_end(&mut self, to: &mut Sealed) {
        self.take_control(to);
        let bytes = &mut self.incoming[self.start..self.end];
        let (discard, said) = match &mut self.side {
            Side::Client(side) => farewell(side.process_tls_records(bytes)),
            Side::Server(side) => farewell(side.process_tls_records(bytes)),
        };
        self.start += discard;
        to.append(&said);
    }
}

/// A record that says so, where one can be made.
fn farewell<D>(status: UnbufferedStatus<'_, '_, D>) -> (usize, Vec<u8>) {
    let mut room = vec![0; 128];
    let count = match status.state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => {
            traffic.queue_close_notify(&mut room).unwrap_or(0)
        }
        _ => 0,
    };
    room.truncate(count);
    (status.discard, room)
}
