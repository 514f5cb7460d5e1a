//! A client on its way to a session. Each step takes a state and gives the next, or refuses, and
//! nothing else makes a state: nobody is admitted who was not authenticated, and nobody is
//! authenticated whose hello may not come this way.

use std::rc::Rc;

use jiff::Timestamp;
use outboard_transport::ivshmem;
use outboard_wire::handshake::auth::TOKEN;
use outboard_wire::handshake::ivshmem::{Able, IVSHMEM};
use outboard_wire::handshake::lease::{LEASE, ShownLease};
use outboard_wire::handshake::peers::{Called, PEERS};
use outboard_wire::handshake::rdma::RDMA;
use outboard_wire::handshake::resume::{Point, RESUME, Terms};
use outboard_wire::handshake::sharing::{RESERVE, Reserve};
use outboard_wire::handshake::who::{WHO, You};
use outboard_wire::handshake::windows::{Acceptable, WINDOWS};
use outboard_wire::handshake::{
    Extensions, HandshakeError, Hello, Process, Purpose, Refusal, RefusalCode, TRACE, TraceParent,
    Version,
};
use outboard_wire::window::Window;
use tokio::time::timeout;

use super::failure::{Failure, refuse};
use crate::auth::Way;
use crate::peer::{Connection, Peer};
use crate::pool::{self, Holding};
use crate::secure;
use crate::sharing::{AdmittedPlace, Request, Turned};
use crate::supervisor::Supervisor;
use outboard_auth::hellos::{Seat, machine};
use outboard_auth::sparing::STRANGERS;
use outboard_control::identity::{Identity, Limits};
use outboard_control::messages::{Grace, Part, ToWorker};
use outboard_control::number::Number;

/// Since this version, clients understand that they have to wait.
const SPEAKS_OF_WAITING: Version = Version { major: 1, minor: 4 };

fn malformed(error: impl Into<HandshakeError>) -> Failure {
    Failure::from(error.into())
}

/// A client that has said hello, in a version that the server speaks. Nothing that it says has been
/// checked.
pub(super) struct Heard {
    hello: Hello,
    way: Way,
    peer: Peer,
}

/// A client that may say what it says where it is.
pub(super) enum Checked {
    /// A further connection of a session.
    Further(Further),
    /// Somebody who is to show who it is.
    Stranger(Stranger),
}

/// A further connection of a session, whose key the client has.
pub(super) struct Further {
    session: u64,
    key: u128,
    connection: FurtherConnection,
    peer: Peer,
}

enum FurtherConnection {
    Lane(ToWorker),
    Resume { point: Point, secure: bool },
    Memory,
    Peer { link: u32, secure: bool, has_adapters: bool },
}

/// A client that has not shown who it is.
pub(super) struct Stranger {
    name: String,
    process: Process,
    version: Version,
    more: Extensions,
    wish: Wish,
    way: Way,
    peer: Peer,
}

/// What a client would like.
pub(super) enum Wish {
    /// A session with these devices.
    Session(Vec<u32>),
    /// Answers about these devices.
    Management(Vec<u32>),
    /// To know what the platform is, and perhaps a place for a session with these devices.
    Probe { reserve: Option<Vec<u32>> },
    /// To know who it is.
    Who,
    /// A file of the client library.
    Library { file: String },
}

/// A client that has been authenticated.
pub(super) struct Known {
    client: Client,
    version: Version,
    peer: Peer,
    encrypted: bool,
}

/// A client that has a place among the sessions.
pub(super) struct Admitted {
    known: Known,
    devices: Devices,
    place: Rc<AdmittedPlace>,
}

/// The devices that a client gets, by their indices on the server; none named are all.
#[derive(Clone, Default)]
pub(super) struct Devices {
    pub(super) indices: Vec<u32>,
    /// What its lease has of each of them, if it has one.
    pub(super) parts: Vec<Part>,
}

/// What an authenticated client has said of itself, and who it is.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) name: String,
    pub(super) process: Process,
    pub(super) identity: Identity,
    /// The lease by which it was admitted.
    pub(super) lease: Option<Rc<Holding>>,
    /// The span of the client's that its session is part of.
    pub(super) parent: Option<TraceParent>,
    /// How long its session is to be kept without a connection.
    pub(super) grace: Option<Grace>,
    /// Where it accepts addresses, if it has said so.
    pub(super) windows: Option<Vec<Window>>,
    /// Whether it has RDMA adapters to which its connections may move.
    pub(super) has_adapters: bool,
    /// The memory that its virtual machine and this host share, if it says that it has some.
    pub(super) region: Option<ivshmem::Id>,
}

impl Heard {
    pub(super) fn new(hello: Hello, stream: &impl Connection, peer: Peer) -> Heard {
        Heard { hello, way: stream.way(peer), peer }
    }

    /// Checks that the server takes such clients now, that the hello may come this way, and, for a
    /// further connection, that the client has the session's key where it says so with a proof.
    pub(super) fn check(self, supervisor: &Supervisor) -> Result<Checked, Failure> {
        let Heard { mut hello, way, peer } = self;
        if let Some(refusal) = supervisor.drain.refusal(&hello.purpose) {
            return Err(Failure::Refused(refusal));
        }
        let secure =
            secure::look_at(supervisor, &mut hello, &way, peer).map_err(Failure::Refused)?;
        let Hello { version, client: name, process, purpose, more, .. } = hello;
        let further = |session, key, connection| {
            Ok(Checked::Further(Further { session, key, connection, peer }))
        };
        let wish = match purpose {
            Purpose::Lane { session, key } => {
                let lane = match more.get(RESUME).map_err(malformed)? {
                    Some(point) => ToWorker::ResumableLane { secure, point },
                    None => ToWorker::Lane { secure },
                };
                return further(session, key, FurtherConnection::Lane(lane));
            }
            Purpose::Resume { session, key } => {
                let point = more.get(RESUME).map_err(malformed)?.ok_or_else(|| {
                    refuse(RefusalCode::BadHello, "the hello does not say what has come")
                })?;
                return further(session, key, FurtherConnection::Resume { point, secure });
            }
            Purpose::Memory { .. } if !matches!(peer, Peer::Local { .. }) => {
                return Err(refuse(
                    RefusalCode::NotAllowed,
                    "memory can be shared over the server's Unix socket only",
                ));
            }
            Purpose::Memory { session, key } => {
                return further(session, key, FurtherConnection::Memory);
            }
            Purpose::Peer { .. } if matches!(peer, Peer::Guest(_)) => {
                return Err(refuse(
                    RefusalCode::NotAllowed,
                    "servers are linked over the network or a Unix socket, not over vsock",
                ));
            }
            Purpose::Peer { session, key } => {
                let Called { link } = more.get(PEERS).map_err(malformed)?.ok_or_else(|| {
                    refuse(RefusalCode::BadHello, "the hello does not say which link it is about")
                })?;
                let has_adapters = has_adapters(&more, peer);
                let connection = FurtherConnection::Peer { link, secure, has_adapters };
                return further(session, key, connection);
            }
            Purpose::Session { devices } => Wish::Session(devices),
            Purpose::Management { devices } => Wish::Management(devices),
            Purpose::Library { file } => Wish::Library { file },
            Purpose::Probe if more.part(WHO).is_some() => Wish::Who,
            Purpose::Probe => {
                let reserve = more.get(RESERVE).ok().flatten();
                Wish::Probe { reserve: reserve.map(|Reserve { devices }| devices) }
            }
        };
        Ok(Checked::Stranger(Stranger { name, process, version, more, wish, way, peer }))
    }
}

/// Whether whoever says this in a hello may move connections to RDMA adapters: those of a network.
fn has_adapters(more: &Extensions, peer: Peer) -> bool {
    more.part(RDMA).is_some() && matches!(peer, Peer::Remote(_))
}

impl Further {
    /// Gives the connection to the session's worker. Whoever has a session's key is its owner.
    pub(super) fn join(
        self,
        supervisor: &Supervisor,
        stream: &impl Connection,
    ) -> Result<(), Failure> {
        let Further { session, key, connection, peer } = self;
        let anybody = |_: &Identity| Ok(());
        let (sessions, stream) = (&supervisor.sessions, stream.for_a_worker());
        match connection {
            FurtherConnection::Lane(lane) => {
                sessions.add(session, key, lane, stream, anybody).map_err(Failure::Refused)?;
                tracing::debug!(session = %Number(session), %peer, "lane");
            }
            FurtherConnection::Resume { point, secure } => {
                let attempt = point.attempt;
                let resume = ToWorker::GoOn { secure, point };
                let may = |identity: &Identity| supervisor.gate.goes_on(identity);
                sessions.add(session, key, resume, stream, may).map_err(Failure::Refused)?;
                tracing::info!(session = %Number(session), %peer, attempt, "the client is back");
            }
            FurtherConnection::Peer { link, secure, has_adapters } => {
                let peer_link = match has_adapters {
                    false => ToWorker::Peer { secure, link },
                    true => ToWorker::MovablePeer { secure, link },
                };
                sessions.add(session, key, peer_link, stream, anybody).map_err(Failure::Refused)?;
                tracing::debug!(session = %Number(session), %peer, link, "another server's worker");
            }
            FurtherConnection::Memory => {
                sessions
                    .add(session, key, ToWorker::Memory, stream, anybody)
                    .map_err(Failure::Refused)?;
                tracing::debug!(session = %Number(session), %peer, "shared memory");
            }
        }
        Ok(())
    }
}

impl Stranger {
    /// Finds out who the client is. It gives up its seat: from here on, the queue counts it, or the
    /// sessions do.
    pub(super) fn authenticate(
        self,
        supervisor: &Supervisor,
        seat: &mut Option<Seat>,
    ) -> Result<(Known, Wish), Failure> {
        let Stranger { name, process, version, more, wish, way, peer } = self;
        let (mut identity, lease) = identify(supervisor, &more, &way)?;
        identity.limits = identity.limits.and(supervisor.config.sharing.limits);
        // A part that makes no sense is as good as none: it is for people to look at.
        let parent = more.get(TRACE).ok().flatten();
        let terms: Option<Terms> = more.get(RESUME).map_err(malformed)?;
        let grace = terms.and_then(|terms| supervisor.config.resume.grace(terms));
        let accepted: Option<Acceptable> = more.get(WINDOWS).map_err(malformed)?;
        let windows = accepted.map(|Acceptable(windows)| windows);
        let has_adapters = has_adapters(&more, peer);
        let able: Option<Able> = more.get(IVSHMEM).map_err(malformed)?;
        let apart = matches!(peer, Peer::Remote(_) | Peer::Guest(_));
        let region = able.filter(|_| apart).map(|able| able.region);
        drop(seat.take());
        let client =
            Client { name, process, identity, lease, parent, grace, windows, has_adapters, region };
        let encrypted = matches!(way, Way::Secure { .. });
        Ok((Known { client, version, peer, encrypted }, wish))
    }
}

impl Known {
    /// What the client is told of itself.
    pub(super) fn you(&self, supervisor: &Supervisor) -> You {
        let identity = &self.client.identity;
        let expires = supervisor.gate.expires(identity);
        let seconds = expires.and_then(|at| u64::try_from(at.as_second()).ok());
        You { owner: identity.owner.clone(), expires: seconds }
    }

    /// Whether the client asks for RDMA adapters.
    pub(super) fn has_adapters(&self) -> bool {
        self.client.has_adapters
    }

    /// Has the client wait for its turn, if it has to.
    pub(super) async fn admit(
        self,
        supervisor: &Supervisor,
        devices: Vec<u32>,
        stream: &mut impl Connection,
    ) -> Result<Admitted, Failure> {
        let devices = self.find(supervisor, devices).await?;
        let (_, place) = self.enter(supervisor, &devices, stream).await?;
        Ok(Admitted { known: self, devices, place })
    }

    /// The same for a client that will come back: the queue keeps its place.
    pub(super) async fn reserve(
        &self,
        supervisor: &Supervisor,
        devices: &Devices,
        stream: &mut impl Connection,
    ) -> Result<(), Failure> {
        let (request, place) = self.enter(supervisor, devices, stream).await?;
        supervisor.queue.keep(&request, place, self.client.lease.clone());
        Ok(())
    }

    /// The devices that the client asks for, as far as its lease has them.
    pub(super) async fn find(
        &self,
        supervisor: &Supervisor,
        wanted: Vec<u32>,
    ) -> Result<Devices, Failure> {
        let Some((held, pool)) = self.client.lease.as_ref().zip(supervisor.pool.as_ref()) else {
            return Ok(Devices { indices: wanted, parts: Vec::new() });
        };
        let platform = timeout(supervisor.config.start_timeout, supervisor.warm.platform()).await;
        let platform = platform.map_err(|_| {
            let sentence = "the server does not know its devices yet: its worker does not start; its log has the reason";
            refuse(RefusalCode::WorkerFailed, sentence)
        })?;
        let all = pool::parts(&held.lease(), pool.name(), &platform).map_err(Failure::Refused)?;
        let parts = pool::chosen(&all, &wanted).map_err(Failure::Refused)?;
        Ok(Devices { indices: parts.iter().map(|part| part.index).collect(), parts })
    }

    async fn enter(
        &self,
        supervisor: &Supervisor,
        Devices { indices: devices, parts }: &Devices,
        stream: &mut impl Connection,
    ) -> Result<(Request, Rc<AdmittedPlace>), Failure> {
        let Known { client, version, peer, .. } = self;
        // A device that there is not would hold its place for nobody.
        if let Some(count) = supervisor.warm.known_devices()
            && let Some(index) = devices.iter().find(|index| **index as usize >= count)
        {
            let sentence =
                format!("the server has no device {index}: it has {count}, numbered from 0");
            return Err(refuse(RefusalCode::NoDevice, sentence));
        }
        let Identity { owner, limits, .. } = &client.identity;
        let holder = client.holder(*peer);
        let mut request = Request {
            holder: holder.clone(),
            owner: owner.clone(),
            owner_sessions: limits.sessions,
            devices: devices.clone(),
            memory: limits.memory.unwrap_or(0),
            exclusive: Vec::new(),
            client: client.name.clone(),
        };
        if let Some(held) = &client.lease {
            // The broker has promised the memory.
            request.memory = 0;
            request.owner = holder;
            request.owner_sessions = Some(pool::most_sessions(&held.lease()));
            let alone = parts.iter().filter(|part| part.exclusive);
            request.exclusive = alone.map(|part| part.index).collect();
        }
        let may_wait = *version >= SPEAKS_OF_WAITING;
        let purpose = Purpose::Session { devices: devices.clone() };
        let stopping =
            || supervisor.drain.refusal_in_queue(&purpose).or_else(|| client.lease_over());
        let ends = || supervisor.sessions.any_ends();
        let queue = &supervisor.queue;
        let entered = queue.enter(request.clone(), stream, may_wait, stopping, ends).await;
        let place = entered.map_err(|turned| match turned {
            Turned::Away(refusal) => Failure::Refused(refusal),
            Turned::Gone(error) => Failure::Broken(error),
        })?;
        Ok((request, place))
    }

    /// Who the client is, where, and whether its connections are encrypted.
    pub(super) fn into_parts(self) -> (Client, Peer, bool) {
        (self.client, self.peer, self.encrypted)
    }
}

impl Admitted {
    pub(super) fn into_parts(self) -> (Known, Devices, Rc<AdmittedPlace>) {
        (self.known, self.devices, self.place)
    }
}

impl Client {
    /// Who it is to others: the processes of a lease are one.
    pub(super) fn holder(&self, peer: Peer) -> String {
        match &self.lease {
            Some(held) => format!("lease {} of {}", held.number(), self.identity.owner),
            None => holder(&self.identity, peer),
        }
    }

    /// Why it is not served any more, if its lease is over.
    pub(super) fn lease_over(&self) -> Option<Refusal> {
        let over = self.lease.as_ref()?.still(Timestamp::now()).err()?;
        Some(pool::over(&over))
    }
}

/// Who shows what, and by which lease it is admitted. A server of a pool wants a lease, or a token
/// that its operator made.
fn identify(
    supervisor: &Supervisor,
    said: &Extensions,
    way: &Way,
) -> Result<(Identity, Option<Rc<Holding>>), Failure> {
    let by_itself = || supervisor.gate.identify(said, way).map_err(Failure::Refused);
    let Some(pool) = &supervisor.pool else { return Ok((by_itself()?, None)) };
    let Some(shown) = said.get::<ShownLease>(LEASE).map_err(malformed)? else {
        if said.part(TOKEN).is_none() {
            return Err(Failure::Refused(pool::lease_needed()));
        }
        return Ok((by_itself()?, None));
    };
    let certificate = match way {
        Way::Secure { .. } => supervisor.gate.fingerprint(),
        Way::Local { .. } | Way::Plain => None,
    };
    let held = pool.admit(&shown, certificate, Timestamp::now()).map_err(|refusal| {
        if let Some(left_out) = STRANGERS.admits("lease") {
            tracing::info!(reason = refusal.sentence, left_out, "a lease was shown in vain");
        }
        Failure::Refused(refusal)
    })?;
    let owner = held.lease().owner.into();
    Ok((Identity { owner, token: None, limits: Limits::default() }, Some(held)))
}

/// Who a client is to others: those who have shown nothing are told apart by their machines, and by
/// nothing that they say themselves.
fn holder(identity: &Identity, peer: Peer) -> String {
    match peer {
        Peer::Remote(address) if identity.owner == Identity::ANONYMOUS => {
            format!("{} at {}", identity.owner, address.ip())
        }
        Peer::Guest(guest) if identity.owner == Identity::ANONYMOUS => {
            format!("{} in {}", identity.owner, guest.machine())
        }
        _ => identity.owner.clone(),
    }
}

/// For whom a client counts that only asks. Whoever has a network of IPv6 has all of its addresses.
pub(super) fn asker(identity: &Identity, peer: Peer) -> String {
    match peer {
        Peer::Remote(address) if identity.owner == Identity::ANONYMOUS => {
            format!("{} at {}", identity.owner, machine(address.ip()))
        }
        Peer::Guest(guest) if identity.owner == Identity::ANONYMOUS => {
            format!("{} in {}", identity.owner, guest.machine())
        }
        _ => identity.owner.clone(),
    }
}
