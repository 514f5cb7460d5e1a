//! Connections to other servers, for links between workers: a worker's sandbox opens none.
//!
//! A client asks for them, so a server connects only where its administrator lets it, and says
//! nothing there but a hello. It is no way into the server's network, and tells nothing of it: a
//! session waits as long, and hears the same, for a port that is closed as for one that is silent.

mod failure;
mod neighbour;
mod reach;
mod turns;

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use outboard_transport::{random, tls};
use outboard_wire::handshake::auth::{PROOF, Proof, proven};
use outboard_wire::handshake::peers::{Called, PEERS};
use outboard_wire::handshake::rdma::{Able, RDMA};
use outboard_wire::handshake::{Extensions, Hello, Local, Process, Purpose, VERSION};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

pub(crate) use failure::Failure;
pub use reach::Reach;
pub(crate) use turns::Turns;

/// Connections that are being made at once, of all sessions.
const MOST: usize = 256;
/// Names that are being resolved at once, of all sessions: each has a thread, for as long as the
/// system takes.
const MOST_NAMES: usize = 64;
/// How long one may take, and how long one takes that fails.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a server takes part in links between workers of several servers.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Where it connects.
    pub reach: Reach,
    /// Where other servers reach it, `HOST:PORT`; none: where its client does.
    pub addresses: Vec<String>,
}

/// Another server.
pub(crate) enum Callee {
    /// HOST:PORT.
    Address(String),
    /// One of this machine.
    Neighbour(Local),
}

/// Where to connect, and what for.
pub(crate) struct Call {
    pub(crate) callee: Callee,
    /// The session there, and the ticket for it.
    pub(crate) session: u64,
    pub(crate) ticket: u128,
    pub(crate) link: u32,
    /// Whether the connection is encrypted behind the hello.
    pub(crate) secure: bool,
    /// Whether it may move to RDMA adapters.
    pub(crate) movable: bool,
}

/// Makes connections.
pub(crate) struct Dialer {
    config: Config,
    /// Where this server's own Unix socket is.
    own: Option<Local>,
    room: Semaphore,
    names: Arc<Semaphore>,
    patience: Duration,
}

impl Dialer {
    pub(crate) fn new(config: Config, own: Option<Local>) -> Dialer {
        let names = Arc::new(Semaphore::new(MOST_NAMES));
        Dialer { config, own, room: Semaphore::new(MOST), names, patience: PATIENCE }
    }

    /// Where other servers reach this one, if its workers can be linked to theirs.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        (self.config.reach != Reach::Nowhere).then(|| self.config.addresses.clone())
    }

    /// Connects and says hello, when it is the request's turn.
    pub(crate) async fn dial(&self, call: &Call, of_session: &Turns) -> Result<OwnedFd, Failure> {
        if self.config.reach == Reach::Nowhere {
            return Err(Failure::open("this server makes no links to others"));
        }
        if let Callee::Address(address) = &call.callee
            && let Ok(literal) = address.parse()
            && !self.reaches(literal)
        {
            return Err(Failure::open(format!(
                "this server does not connect to {address}: `outboard serve --peers NETWORK` names \
                 the networks in which it does"
            )));
        }
        let turn = of_session.come().await;
        let _turn = turn.ok_or_else(|| {
            Failure::open("the session has too many connections to other servers under way")
        })?;
        match &call.callee {
            Callee::Address(address) => self.connect(address, call, of_session).await,
            Callee::Neighbour(server) => self.meet(server, call).await,
        }
    }

    fn reaches(&self, address: SocketAddr) -> bool {
        self.config.reach.has(address.ip())
    }

    /// Connects to an address. A failure is told when the time is over, however early it came.
    async fn connect(
        &self,
        address: &str,
        call: &Call,
        of_session: &Turns,
    ) -> Result<OwnedFd, Failure> {
        let end = Instant::now() + self.patience;
        let connected = async {
            let found = self.resolve(address, of_session).await?;
            let reached = found.iter().find(|found| self.reaches(**found)).ok_or_else(|| {
                format!("it is {found:?}, in no network in which this server connects to others")
            })?;
            let _place = self.room.acquire().await.map_err(said)?;
            let mut stream = TcpStream::connect(reached).await.map_err(said)?;
            stream.set_nodelay(true).map_err(said)?;
            stream.write_all(&hello(call).map_err(said)?).await.map_err(said)?;
            let stream = stream.into_std().map_err(said)?;
            stream.set_nonblocking(false).map_err(said)?;
            Ok(OwnedFd::from(stream))
        };
        match timeout_at(end, connected).await.unwrap_or_else(|_| Err(self.silent())) {
            Ok(connection) => Ok(connection),
            Err(reason) => {
                sleep_until(end).await;
                Err(Failure::hidden(address, reason))
            }
        }
    }

    /// The addresses of a server. A name keeps its places until the system has given it up, which
    /// may be long after this server has.
    async fn resolve(&self, address: &str, of_session: &Turns) -> Result<Vec<SocketAddr>, String> {
        if let Ok(literal) = address.parse() {
            return Ok(vec![literal]);
        }
        let mut places = Vec::new();
        for names in [&of_session.names, &self.names] {
            places.push(Arc::clone(names).acquire_owned().await.map_err(said)?);
        }
        let address = address.to_owned();
        let resolved = tokio::task::spawn_blocking(move || {
            let _places = places;
            Ok(address.to_socket_addrs().map_err(said)?.collect())
        });
        resolved.await.map_err(said)?
    }

    /// Connects to a server of this machine. A failure is told at once: the worker then tries its
    /// address, and what is in the folders of servers' sockets is no secret of the network.
    async fn meet(&self, server: &Local, call: &Call) -> Result<OwnedFd, Failure> {
        let hidden = |reason| Failure::hidden(&server.path, reason);
        let connected = async {
            let mut stream = neighbour::connect(self.own.as_ref(), server).await?;
            let said_hello = async {
                stream.write_all(&hello(call)?).await?;
                Ok(OwnedFd::from(stream.into_std()?))
            };
            said_hello.await.map_err(|error: io::Error| hidden(said(error)))
        };
        timeout(self.patience, connected).await.unwrap_or_else(|_| Err(hidden(self.silent())))
    }

    fn silent(&self) -> String {
        format!("no answer within {} s", self.patience.as_secs())
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}

/// The hello of a connection. In one that is encrypted behind it, a proof stands for the ticket.
fn hello(call: &Call) -> io::Result<Vec<u8>> {
    let &Call { session, ticket, link, secure, movable, .. } = call;
    let mut more = Extensions::default();
    more.set(PEERS, &Called { link });
    if movable {
        more.set(RDMA, &Able);
    }
    let mut purpose = Purpose::Peer { session, key: ticket };
    if secure {
        purpose = Purpose::Peer { session, key: 0 };
        let nonce = u128::from_le_bytes(random()?);
        let tag = tls::tag(ticket, &proven(session, purpose.number(), nonce, &more));
        more.set(PROOF, &Proof { nonce, tag });
    }
    let hello = Hello {
        version: VERSION,
        software: env!("CARGO_PKG_VERSION").to_owned(),
        client: "a worker of another server".to_owned(),
        purpose,
        process: Process::default(),
        more,
    };
    Ok(hello.encode())
}

#[cfg(test)]
mod tests;
