//! Connections to other servers, for links between workers: a worker's sandbox opens none.
//!
//! A client asks for them, so a server connects only where its administrator lets it, and says
//! nothing there but a hello: it is no way into the server's network.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ipnet::IpNet;
use outboard_transport::{random, tls};
use outboard_wire::handshake::auth::{PROOF, Proof, proven};
use outboard_wire::handshake::peers::{Called, PEERS};
use outboard_wire::handshake::rdma::{Able, RDMA};
use outboard_wire::handshake::{Extensions, Hello, Local, Process, Purpose, VERSION};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::neighbour;

/// Connections that are being made at once.
const MOST: usize = 64;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a server takes part in links between workers of several servers.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Where it connects.
    pub reach: Reach,
    /// Where other servers reach it, `HOST:PORT`; none: where its client does.
    pub addresses: Vec<String>,
}

/// The addresses to which a server connects because a client asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Those of this machine and of private networks.
    #[default]
    Private,
    /// Those in these networks.
    Networks(Vec<IpNet>),
    /// None: its workers are linked to no others.
    Nowhere,
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
}

impl Reach {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match self {
            Reach::Private => is_private(address),
            Reach::Networks(networks) => networks.iter().any(|network| network.contains(&address)),
            Reach::Nowhere => false,
        }
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        // 100.64.0.0/10 is what providers' networks have inside (RFC 6598).
        IpAddr::V4(v4) => {
            let shared = v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64;
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || shared
        }
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

impl Dialer {
    pub(crate) fn new(config: Config, own: Option<Local>) -> Dialer {
        Dialer { config, own, room: Semaphore::new(MOST) }
    }

    /// Where other servers reach this one, if its workers can be linked to theirs.
    pub(crate) fn addresses(&self) -> Option<Vec<String>> {
        (self.config.reach != Reach::Nowhere).then(|| self.config.addresses.clone())
    }

    /// Connects and says hello; the connection, or a sentence that says why there is none.
    pub(crate) async fn dial(&self, call: &Call) -> Result<OwnedFd, String> {
        let _place = self
            .room
            .try_acquire()
            .map_err(|_| format!("the server is making {MOST} connections to other servers"))?;
        let connected = async {
            match &call.callee {
                Callee::Address(address) => self.connect(address, call).await,
                Callee::Neighbour(server) => self.meet(server, call).await,
            }
        };
        timeout(PATIENCE, connected).await.unwrap_or_else(|_| {
            let name = match &call.callee {
                Callee::Address(address) => address,
                Callee::Neighbour(server) => &server.path,
            };
            Err(format!("{name} did not answer within {} s", PATIENCE.as_secs()))
        })
    }

    async fn connect(&self, address: &str, call: &Call) -> Result<OwnedFd, String> {
        let failed = |error: io::Error| format!("{address} cannot be reached: {error}");
        let found: Vec<SocketAddr> = lookup_host(address).await.map_err(failed)?.collect();
        let reached = found.into_iter().find(|found| self.config.reach.has(found.ip()));
        let reached = reached.ok_or_else(|| {
            format!(
                "this server does not connect to {address}: `outboard serve --peers NETWORK` names \
                 the networks to which it does"
            )
        })?;
        let mut stream = TcpStream::connect(reached).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.write_all(&hello(call).map_err(failed)?).await.map_err(failed)?;
        let stream = stream.into_std().map_err(failed)?;
        stream.set_nonblocking(false).map_err(failed)?;
        Ok(stream.into())
    }

    /// The same with a server of this machine.
    async fn meet(&self, server: &Local, call: &Call) -> Result<OwnedFd, String> {
        if self.config.reach == Reach::Nowhere {
            return Err("this server makes no links to others".to_owned());
        }
        let failed = |error: io::Error| format!("{} cannot be reached: {error}", server.path);
        let mut stream = neighbour::connect(self.own.as_ref(), server).await?;
        stream.write_all(&hello(call).map_err(failed)?).await.map_err(failed)?;
        Ok(stream.into_std().map_err(failed)?.into())
    }
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
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_reach_or_not() {
        let private = ["127.0.0.1", "::1", "10.1.2.3", "172.16.0.1", "192.168.9.9", "169.254.0.1"];
        let shared = ["100.64.0.1", "100.127.255.255", "fd00::1", "fe80::1", "::ffff:10.0.0.1"];
        for address in private.into_iter().chain(shared) {
            assert!(Reach::Private.has(address.parse().unwrap()), "{address}");
            assert!(!Reach::Nowhere.has(address.parse().unwrap()), "{address}");
        }
        for address in ["8.8.8.8", "100.128.0.1", "2001:db8::1", "::ffff:8.8.8.8", "172.32.0.1"] {
            assert!(!Reach::Private.has(address.parse().unwrap()), "{address}");
        }
        let some = Reach::Networks(vec!["10.1.0.0/16".parse().unwrap()]);
        assert!(some.has("10.1.255.1".parse().unwrap()));
        assert!(some.has("::ffff:10.1.0.1".parse().unwrap()));
        assert!(!some.has("10.2.0.1".parse().unwrap()) && !some.has("127.0.0.1".parse().unwrap()));
    }

    fn call(address: &str, secure: bool) -> Call {
        let callee = Callee::Address(address.to_owned());
        Call { callee, session: 1, ticket: 2, link: 3, secure, movable: false }
    }

    #[test]
    fn a_ticket_is_not_told_where_the_hello_is_in_the_clear_and_the_rest_is_not() {
        let (open, sealed) = (hello(&call("a:1", false)), hello(&call("a:1", true)));
        let ticket = 2_u128.to_le_bytes();
        let has = |bytes: &[u8]| bytes.windows(16).any(|window| window == ticket);
        assert!(has(&open.unwrap()) && !has(&sealed.unwrap()));
    }

    #[tokio::test]
    async fn what_is_out_of_reach_is_not_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let reach = Reach::Networks(vec!["10.0.0.0/8".parse().unwrap()]);
        let dialer = Dialer::new(Config { reach, addresses: Vec::new() }, None);
        let refused = dialer.dial(&call(&address, false)).await.unwrap_err();
        assert!(refused.contains("--peers"), "{refused}");
        let dialer = Dialer::new(Config::default(), None);
        assert!(dialer.dial(&call(&address, false)).await.is_ok());
        assert!(dialer.dial(&call("nonsense", false)).await.is_err());
    }
}
