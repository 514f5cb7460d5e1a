//! The handshake, by rustls, up to the keys.

use std::io;

use rustls::ExtractedSecrets;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, InsufficientSizeError, UnbufferedStatus};

use super::config::Fingerprint;
use super::incoming::Incoming;
use super::keys::{Key, OVERHEAD, RECORD, Secrets, failure, wrong};
use super::outgoing::Outgoing;

/// Which side of the connection this is.
pub(super) enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// A connection whose handshake goes on.
pub(super) struct Handshake {
    side: Side,
    received: Received,
    /// What rustls wants to have sent.
    to_send: Vec<u8>,
}

/// What the peer has sent so far.
#[derive(Default)]
struct Received {
    /// Encrypted, or of the handshake.
    bytes: Vec<u8>,
    /// Decrypted bytes that came right behind the handshake.
    plain: Vec<u8>,
    ended: bool,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something was done; there may be more.
    Done,
    /// The handshake waits for bytes of the peer.
    Blocked,
    /// The handshake is over.
    Open,
}

/// Does the next step that rustls asks for; returns how many received bytes it used up, and the
/// result.
fn handle<D>(
    status: UnbufferedStatus<'_, '_, D>,
    plain: &mut Vec<u8>,
    ended: &mut bool,
    to_send: &mut Vec<u8>,
) -> (usize, io::Result<Step>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(failure(error)),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Done),
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(failure(error)),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => encode(to_send, |room| data.encode(room)),
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It is written before anything else is.
            data.done();
            Ok(Step::Done)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
        Ok(ConnectionState::WriteTraffic(_) | ConnectionState::Closed) => Ok(Step::Open),
        Ok(ConnectionState::PeerClosed) => {
            *ended = true;
            Ok(Step::Done)
        }
        Ok(other) => Err(wrong(&format!("not expected: {other:?}"))),
    };
    (discard, step)
}

/// Appends a record that rustls has made.
fn encode(
    to_send: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> io::Result<Step> {
    let before = to_send.len();
    let mut room = RECORD + OVERHEAD;
    loop {
        to_send.resize(before + room, 0);
        match encode(&mut to_send[before..]) {
            Ok(count) => {
                to_send.truncate(before + count);
                return Ok(Step::Done);
            }
            Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size }))
                if required_size > room =>
            {
                room = required_size;
            }
            Err(error) => {
                to_send.truncate(before);
                return Err(io::Error::other(error));
            }
        }
    }
}

impl Handshake {
    pub(super) fn new(side: Side) -> Handshake {
        Handshake { side, received: Received::default(), to_send: Vec::new() }
    }

    /// Has rustls do one thing. What is to be sent can be [taken](Self::take_to_send) then.
    pub(super) fn step(&mut self) -> io::Result<Step> {
        let Handshake { side, received: Received { bytes, plain, ended }, to_send } = self;
        let (discard, step) = match side {
            Side::Client(side) => handle(side.process_tls_records(bytes), plain, ended, to_send),
            Side::Server(side) => handle(side.process_tls_records(bytes), plain, ended, to_send),
        };
        bytes.drain(..discard);
        step
    }

    /// Receives with `read`; returns how many bytes.
    pub(super) fn receive(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let bytes = &mut self.received.bytes;
        let before = bytes.len();
        bytes.resize(before + RECORD + OVERHEAD, 0);
        let count = read(&mut bytes[before..]);
        bytes.truncate(before + *count.as_ref().unwrap_or(&0));
        count
    }

    /// The peer's first bytes, if TLS cannot begin with them.
    pub(super) fn in_the_clear(&self) -> Option<&[u8]> {
        let said = &*self.received.bytes;
        // Types of records: 20 to 24.
        said.first().is_some_and(|first| !(20..=24).contains(first)).then_some(said)
    }

    /// Takes what rustls wants to have sent.
    pub(super) fn take_to_send(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.to_send)
    }

    /// Takes the alert with which rustls answers what it has just refused.
    pub(super) fn take_alert(&mut self) -> Vec<u8> {
        // It goes wrong again once the alert is there.
        while self.to_send.is_empty() && matches!(self.step(), Ok(Step::Done)) {}
        self.take_to_send()
    }

    /// The fingerprint of the certificate that the peer has shown.
    pub(super) fn certificate_of_peer(&self) -> Option<Fingerprint> {
        let chain = match &self.side {
            Side::Client(connection) => connection.peer_certificates(),
            Side::Server(connection) => connection.peer_certificates(),
        };
        chain.and_then(|chain| chain.first()).map(|first| Fingerprint::of(first))
    }

    /// Both directions, once the handshake is [over](Step::Open) and all has been sent.
    pub(super) fn finish(self) -> io::Result<(Incoming, Outgoing, Secrets)> {
        let (ExtractedSecrets { tx, rx }, secrets) = match self.side {
            Side::Client(connection) => {
                let (keys, secrets) =
                    connection.dangerous_into_kernel_connection().map_err(failure)?;
                (keys, Secrets::Client(secrets))
            }
            Side::Server(connection) => {
                let (keys, secrets) =
                    connection.dangerous_into_kernel_connection().map_err(failure)?;
                (keys, Secrets::Server(secrets))
            }
        };
        let Received { bytes, plain, ended } = self.received;
        let incoming = Incoming::new(Key::new(rx)?, plain, &bytes, ended);
        Ok((incoming, Outgoing::new(Key::new(tx)?, secrets.records_of_a_key()), secrets))
    }
}
