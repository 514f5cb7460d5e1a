//! The handshake over a stream, and the first bytes behind it.

use std::borrow::Cow;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

use super::config::Fingerprint;
use super::handshake::{Agreed, Handshake, Side, Step};
use super::keys::{Key, Secrets};
use super::outgoing::Outgoing;
use crate::stream::{Interest, Stream};

/// A connection on which both sides have keys, and nothing waits to be sent.
pub(super) struct Shaken {
    pub(super) below: Arc<dyn Stream>,
    pub(super) agreed: Agreed,
    pub(super) outgoing: Outgoing,
}

/// The first bytes of a peer that does not speak TLS.
#[derive(Debug, thiserror::Error)]
#[error("the other side does not encrypt")]
struct InTheClear(Vec<u8>);

impl InTheClear {
    fn error(said: &[u8]) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, InTheClear(said.to_vec()))
    }
}

/// The first bytes of a peer that does not speak TLS, if the handshake has failed because of them.
pub fn in_the_clear(error: &io::Error) -> Option<&[u8]> {
    error.get_ref()?.downcast_ref().map(|InTheClear(said)| said.as_slice())
}

/// Blocks until the stream below is ready, at most until the deadline.
pub(super) fn wait_below(
    below: &dyn Stream,
    interest: Interest,
    deadline: Instant,
) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    below.wait(interest, None, Some(left)).map(drop)
}

/// Writes all of it, at most until the deadline.
fn write_below(below: &dyn Stream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match below.write(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_below(below, Interest::WRITE, deadline)?
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the handshake, and sends what `first` makes of the peer's certificate with its last
/// message.
pub(super) fn shake_hands<'a>(
    below: Arc<dyn Stream>,
    side: Side,
    first: impl FnOnce(Option<Fingerprint>) -> Cow<'a, [u8]>,
    deadline: Instant,
) -> io::Result<Shaken> {
    let mut handshake = Handshake::new(side);
    loop {
        let step = match handshake.step() {
            Ok(step) => step,
            Err(_) if let Some(said) = handshake.in_the_clear() => {
                return Err(InTheClear::error(said));
            }
            Err(error) => {
                // The peer is told why, if it can be.
                let _ = write_below(&*below, &handshake.take_alert(), deadline);
                return Err(error);
            }
        };
        match step {
            Step::Done => {}
            Step::Open => break,
            Step::Blocked => {
                write_below(&*below, &handshake.take_to_send(), deadline)?;
                match handshake.receive(|room| below.read(room)) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        wait_below(&*below, Interest::READ, deadline)?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    let first = first(handshake.certificate_of_peer());
    let mut to_send = handshake.take_to_send();
    let mut agreed = handshake.finish()?;
    let limit = agreed.secrets.records_of_a_key();
    let mut outgoing = Outgoing::new(Key::new(&agreed.send_with)?, limit);
    // The last message of the handshake and the first bytes are one packet.
    to_send.extend(sealed(&mut outgoing, &mut agreed.secrets, &first)?);
    write_below(&*below, &to_send, deadline)?;
    Ok(Shaken { below, agreed, outgoing })
}

/// The records of some bytes, while nothing else is to be written.
fn sealed(outgoing: &mut Outgoing, secrets: &mut Secrets, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let (mut sealed, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        at += outgoing.seal(&[IoSlice::new(bytes)], at, || secrets.next_to_send())?;
        sealed.extend_from_slice(outgoing.rest());
        let count = outgoing.rest().len();
        outgoing.advance(count);
    }
    Ok(sealed)
}
