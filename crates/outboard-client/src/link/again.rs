//! Further connections of a session: lanes, and those that take the place of lost ones.

use std::time::{Duration, Instant};

use outboard_transport::Transport;
use outboard_wire::handshake::resume::{Point, RESUME, Terms};
use outboard_wire::handshake::{HandshakeError, Hello, Kind, Purpose, Welcome};
use outboard_wire::{Decode, DecodeError};

use super::bulk::state::Dial;
use super::config::Config;
use super::connect::{Secured, join};
use super::connection::{ATTEMPT, Resume};
use super::error::ConnectError;

/// Connects a further lane of the session that `welcome` opened.
pub(super) fn dial<T: Transport + 'static>(
    transport: T,
    address: &str,
    hello: &Hello,
    welcome: &Welcome,
    secured: Option<Secured>,
    config: &Config,
) -> Dial {
    let purpose = Purpose::Lane { session: welcome.session, key: welcome.key };
    let mut hello = Hello { purpose, ..hello.clone() };
    hello.more.remove(RESUME);
    let (address, timeout) = (address.to_owned(), config.timeout);
    Box::new(move |point| {
        let mut hello = hello.clone();
        if let Some(point) = point {
            hello.more.set(RESUME, &point);
        }
        // If the link can go on after a loss, many attempts in little time are better than one.
        let timeout = if point.is_some() { timeout.min(ATTEMPT) } else { timeout };
        let unreachable = |error| ConnectError::Unreachable { address: address.clone(), error };
        let stream = transport.connect(&address, timeout).map_err(unreachable)?;
        let deadline = Instant::now() + 5 * timeout;
        let (stream, welcome) = join(stream, &address, &hello, secured.as_ref(), deadline)?;
        let answer = part(&welcome, RESUME, &address)?;
        if point.is_some() && answer.is_none() {
            return Err(says_nothing(&address));
        }
        Ok((stream, answer))
    })
}

/// A server that goes on with a client must say where it is.
fn says_nothing(address: &str) -> ConnectError {
    malformed(address, DecodeError::Invalid { what: "answer to a client that is back", value: 0 })
}

fn malformed(address: &str, error: DecodeError) -> ConnectError {
    ConnectError::Handshake { address: address.to_owned(), error: HandshakeError::Malformed(error) }
}

/// A part of a welcome, if it is there. To take a damaged one for none would leave the two sides
/// with different rules.
pub(super) fn part<P: for<'a> Decode<'a>>(
    welcome: &Welcome,
    kind: Kind,
    address: &str,
) -> Result<Option<P>, ConnectError> {
    welcome.more.get(kind).map_err(|error| malformed(address, error))
}

/// Resumes the session that `welcome` opened, if the server allows that.
pub(super) fn resume<T: Transport + 'static>(
    transport: T,
    address: &str,
    hello: &Hello,
    welcome: &Welcome,
    secured: Option<Secured>,
    shares_memory: bool,
) -> Result<Option<Resume>, ConnectError> {
    // A peer in this machine's memory cannot be cut off.
    let terms: Option<Terms> = part(welcome, RESUME, address)?;
    let wish: Option<Terms> = hello.more.get(RESUME).ok().flatten();
    let (Some(terms), Some(wish), false) = (terms, wish, shares_memory) else { return Ok(None) };
    let purpose = Purpose::Resume { session: welcome.session, key: welcome.key };
    let (hello, address) = (Hello { purpose, ..hello.clone() }, address.to_owned());
    let again = move |point: Point, timeout: Duration| {
        let mut hello = hello.clone();
        hello.more.set(RESUME, &point);
        let unreachable = |error| ConnectError::Unreachable { address: address.clone(), error };
        let stream = transport.connect(&address, timeout).map_err(unreachable)?;
        // The worker answers at once, but the server may have much to do.
        let deadline = Instant::now() + 5 * timeout;
        let (stream, welcome) = join(stream, &address, &hello, secured.as_ref(), deadline)?;
        let point = part(&welcome, RESUME, &address)?.ok_or_else(|| says_nothing(&address))?;
        Ok((stream, point))
    };
    Ok(Some(Resume { again: Box::new(again), grace: terms.grace.min(wish.grace) }))
}
