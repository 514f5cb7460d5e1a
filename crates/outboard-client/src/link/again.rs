//! Further connections of a session: lanes, and those that take the place of lost ones.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outboard_transport::{Stream, Transport};
use outboard_wire::handshake::resume::{Point, RESUME, Terms};
use outboard_wire::handshake::{HandshakeError, Hello, Kind, Purpose, Welcome};
use outboard_wire::{Decode, DecodeError};
use rustix::event::{EventfdFlags, eventfd};

use super::bulk::state::Dial;
use super::config::Config;
use super::connect::{Secured, join};
use super::connection::{ATTEMPT, Resume};
use super::error::ConnectError;
use super::locks::lock;
use super::movable::{COMMANDS, Movable};

/// What makes further connections of a session such as its first one.
#[derive(Clone)]
pub(super) struct Again<T> {
    pub(super) transport: T,
    pub(super) secured: Option<Secured>,
    pub(super) movable: Option<Arc<Movable>>,
}

impl<T: Transport + Clone + 'static> Again<T> {
    /// Connects further lanes of the session that `welcome` opened. The descriptor of the first is
    /// kept for it.
    pub(super) fn dial(
        &self,
        address: &str,
        hello: &Hello,
        welcome: &Welcome,
        config: &Config,
        shares_memory: bool,
    ) -> Dial {
        let purpose = Purpose::Lane { session: welcome.session, key: welcome.key };
        let mut hello = Hello { purpose, ..hello.clone() };
        hello.more.remove(RESUME);
        let (address, timeout) = (address.to_owned(), config.timeout);
        let again = self.clone();
        // A program may have none to spare by the time of its first large copy.
        let kept = (!shares_memory).then(|| eventfd(0, EventfdFlags::CLOEXEC).ok()).flatten();
        let descriptor = Mutex::new(kept);
        Box::new(move |point| {
            drop(lock(&descriptor).take());
            let mut hello = hello.clone();
            if let Some(point) = point {
                hello.more.set(RESUME, &point);
            }
            // If the link can go on after a loss, many attempts in little time are better than one.
            let timeout = if point.is_some() { timeout.min(ATTEMPT) } else { timeout };
            let which = point.map(|point| point.lane);
            let (stream, welcome) = again.connect(&address, &hello, which, timeout)?;
            let answer = part(&welcome, RESUME, &address)?;
            if point.is_some() && answer.is_none() {
                return Err(says_nothing(&address));
            }
            Ok((stream, answer))
        })
    }

    /// Resumes the session that `welcome` opened, if the server allows that.
    pub(super) fn resume(
        &self,
        address: &str,
        hello: &Hello,
        welcome: &Welcome,
        shares_memory: bool,
    ) -> Result<Option<Resume>, ConnectError> {
        // A peer in this machine's memory cannot be cut off.
        let terms: Option<Terms> = part(welcome, RESUME, address)?;
        let wish: Option<Terms> = hello.more.get(RESUME).ok().flatten();
        let (Some(terms), Some(wish), false) = (terms, wish, shares_memory) else {
            return Ok(None);
        };
        let purpose = Purpose::Resume { session: welcome.session, key: welcome.key };
        let (hello, address) = (Hello { purpose, ..hello.clone() }, address.to_owned());
        let again = self.clone();
        let again = move |point: Point, timeout: Duration| {
            let mut hello = hello.clone();
            hello.more.set(RESUME, &point);
            let (stream, welcome) = again.connect(&address, &hello, COMMANDS, timeout)?;
            let point = part(&welcome, RESUME, &address)?.ok_or_else(|| says_nothing(&address))?;
            Ok((stream, point))
        };
        Ok(Some(Resume { again: Box::new(again), grace: terms.grace.min(wish.grace) }))
    }

    /// One more connection.
    fn connect(
        &self,
        address: &str,
        hello: &Hello,
        which: Option<u32>,
        timeout: Duration,
    ) -> Result<(Arc<dyn Stream>, Welcome), ConnectError> {
        let unreachable = |error| ConnectError::Unreachable { address: address.to_owned(), error };
        let stream = self.transport.connect(address, timeout).map_err(unreachable)?;
        // The worker answers at once, but the server may have much to do.
        let deadline = Instant::now() + 5 * timeout;
        let movable = self.movable.as_deref().map(|movable| (movable, which));
        join(stream, address, hello, self.secured.as_ref(), movable, deadline)
    }
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
