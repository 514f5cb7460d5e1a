//! Moves the connections of a session to RDMA adapters, where client and server have them.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use outboard_transport::rdma::{self, direct, move_to};
use outboard_transport::{Endpoint, Outcome, Stream, stay, write_all};
use outboard_wire::handshake::rdma::Adapters as Offer;
use outboard_wire::handshake::{Hello, Purpose};

use super::bulk::lending::Lending;
use super::config::{Choice, Config, Rdma};
use super::connect::{Secured, broken};
use super::error::ConnectError;
use super::locks::lock;
use super::movable::{COMMANDS, Settled};
use super::security::Tls;

/// A connection that breaks so soon after it has moved would do so again.
const SOON: Duration = Duration::from_secs(10);
/// For how long connections do not move then, nor after one that could not.
const REST: Duration = Duration::from_secs(60);

/// Whether the hello of a session says that its connections may move.
pub(super) fn may_move(address: &str, hello: &Hello, config: &Config) -> bool {
    matches!(config.transport, Choice::Auto | Choice::Rdma)
        && matches!(hello.purpose, Purpose::Session { .. })
        && matches!(address.parse(), Ok(Endpoint::Tcp(_)))
        && rdma::has_adapters()
}

/// A session whose connections may move to adapters. The worker expects of each that the client
/// says whether it does.
pub struct Adapters {
    offer: Offer,
    rdma: Rdma,
    /// Whether the user wants the bytes encrypted, whatever the server says.
    must_encrypt: bool,
    lending: Arc<Lending>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When each of the session's connections has moved last.
    moved: HashMap<u32, Instant>,
    rests_until: Option<Instant>,
    /// Connections take the ways in turn.
    next: usize,
    /// Whether memory was lent over a connection, or was to be.
    has_lent: bool,
}

impl Adapters {
    /// The session whose server offers these; `None` if it offers none.
    pub(super) fn new(offer: Option<Offer>, config: &Config) -> Option<Adapters> {
        let offer = offer.filter(|offer| !offer.addresses.is_empty())?;
        let must_encrypt = config.security.tls == Tls::On;
        let Rdma { allowed, settings } = config.rdma.clone();
        let rdma = Rdma { allowed, settings: settings.within_locked_memory() };
        let (lending, state) = (Arc::default(), Mutex::default());
        Some(Adapters { offer, rdma, must_encrypt, lending, state })
    }

    /// Memory that the session lends to an adapter of the server's.
    pub(super) fn lending(&self) -> Arc<Lending> {
        Arc::clone(&self.lending)
    }

    /// Whether there is a way to one of the server's adapters.
    pub(super) fn check(&self) -> io::Result<()> {
        self.rdma.allowed.ways(&self.offer.addresses).map(drop)
    }

    /// Moves the connection, if it can be.
    pub(super) fn settle(
        &self,
        met: Arc<dyn Stream>,
        secured: Option<&Secured>,
        connection: Option<u32>,
        address: &str,
        deadline: Instant,
    ) -> Result<Settled, ConnectError> {
        let way = self.way(connection).and_then(|(way, is_only)| {
            let lends = is_only && !self.encrypts(secured) && self.is_to_lend(connection);
            let lends = lends.then(|| way.1.open()).transpose()?;
            Ok((way.0, way.1.open()?, lends))
        });
        let (place, endpoint, lends) = match way {
            Ok(way) => way,
            Err(why) => {
                stay(&*met).map_err(|error| broken(address, error))?;
                return Ok((met, Some(why.to_string())));
            }
        };
        let settings = self.rdma.settings;
        let moved = move_to(&met, (place, lends.is_some()), endpoint, settings, deadline);
        match moved.map_err(|error| broken(address, error))? {
            Outcome::Moved(stream) => {
                lock(&self.state).moved.extend(connection.map(|which| (which, Instant::now())));
                let stream = self.encrypt(stream, secured, address, deadline)?;
                if let Some(endpoint) = lends {
                    let lent = direct::lend(&*stream, endpoint, settings, deadline);
                    // Without it, copies go as others do.
                    if let Ok(lender) = lent.map_err(|error| broken(address, error))? {
                        self.lending.begin(lender);
                    }
                }
                Ok((stream, None))
            }
            Outcome::Stays(why) => {
                lock(&self.state).rests_until = Some(Instant::now() + REST);
                Ok((met, why.map(|why| why.to_string())))
            }
        }
    }

    /// Whether memory is lent over this connection: the first lane that can go on after a loss.
    fn is_to_lend(&self, connection: Option<u32>) -> bool {
        let is_lane = connection.is_some() && connection != COMMANDS;
        self.offer.borrow && is_lane && !std::mem::replace(&mut lock(&self.state).has_lent, true)
    }

    /// Whether bytes on adapters are encrypted.
    fn encrypts(&self, secured: Option<&Secured>) -> bool {
        secured.is_some() && (self.must_encrypt || !self.offer.clear)
    }

    /// The way for the connection, and whether there is no other.
    fn way(&self, connection: Option<u32>) -> io::Result<((u8, rdma::Port), bool)> {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let before = connection.and_then(|which| state.moved.remove(&which));
        if before.is_some_and(|moved| now < moved + SOON) {
            state.rests_until = Some(now + REST);
        }
        if state.rests_until.is_some_and(|until| now < until) {
            return Err(io::Error::other("a connection over the adapters has just failed"));
        }
        let ways = self.rdma.allowed.ways(&self.offer.addresses)?;
        let (place, port) = ways[state.next % ways.len()].clone();
        state.next += 1;
        let way = (u8::try_from(place).map_err(io::Error::other)?, port);
        Ok((way, ways.len() == 1))
    }

    /// Has the bytes encrypted, if those of the connection before were: unless the server says that
    /// they need not be, and the user does not object.
    fn encrypt(
        &self,
        stream: Arc<dyn Stream>,
        secured: Option<&Secured>,
        address: &str,
        deadline: Instant,
    ) -> Result<Arc<dyn Stream>, ConnectError> {
        let Some(secured) = secured else { return Ok(stream) };
        let encrypts = self.encrypts(Some(secured));
        write_all(&*stream, &[u8::from(encrypts)]).map_err(|error| broken(address, error))?;
        if encrypts {
            return Ok(secured.take_over(stream, address, deadline)?);
        }
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_wire::handshake::rdma::AdapterAddress;

    fn adapters() -> Adapters {
        let address = AdapterAddress { gid: [0; 16], ethernet: true };
        let offer = Offer { addresses: vec![address], ..Offer::default() };
        Adapters::new(Some(offer), &Config::default()).unwrap()
    }

    fn rests(adapters: &Adapters, lane: u32) -> bool {
        adapters.way(Some(lane)).is_err_and(|error| error.to_string().contains("just failed"))
    }

    #[test]
    fn a_server_without_adapters_moves_no_connection() {
        assert!(Adapters::new(None, &Config::default()).is_none());
        assert!(Adapters::new(Some(Offer::default()), &Config::default()).is_none());
    }

    #[test]
    fn connections_that_break_soon_after_they_have_moved_stay() {
        let adapters = adapters();
        assert!(!rests(&adapters, 0));
        let long_ago = Instant::now().checked_sub(2 * SOON).unwrap();
        lock(&adapters.state).moved.insert(0, long_ago);
        assert!(!rests(&adapters, 0), "it has carried the session for a while");
        lock(&adapters.state).moved.insert(3, Instant::now());
        assert!(!rests(&adapters, 0), "that was another one");
        assert!(rests(&adapters, 3));
        assert!(rests(&adapters, 0), "nor do others");
        lock(&adapters.state).rests_until = Some(long_ago);
        assert!(!rests(&adapters, 3), "after a while they are tried again");
    }
}
