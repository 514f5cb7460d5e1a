//! From a new connection to a worker that serves it.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use outboard_transport::tls::Fingerprint;
use outboard_wire::handshake::auth::Secure;
use outboard_wire::handshake::resume::{RESUME, Terms};
use outboard_wire::handshake::sharing::{RESERVE, Reserve};
use outboard_wire::handshake::{
    Extensions, HELLO_LIMIT, HandshakeError, Hello, Preamble, Process, Purpose, Refusal, RefusalCode, TRACE,
    TraceParent, VERSION, Version, Welcome,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::hellos::Seat;
use super::sessions::{About, Kind, Unwelcome};
use super::sharing::{Place, Request, Turned};
use super::tally::Outcome;
use super::workers::{self, Worker};
use super::{Connection, Peer, Supervisor, secure};
use crate::auth::{Way, certificate};
use crate::control::{self, Grace, Start, ToWorker};
use crate::identity::Identity;

/// Connections of one owner, or one machine of those that have shown nothing, that only ask and need a worker for that.
const MOST_QUESTIONS: usize = 64;
/// Since this version, clients understand that they have to wait.
const SPEAKS_OF_WAITING: Version = Version { major: 1, minor: 4 };

/// Why a connection came to nothing.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Refused(Refusal),
    /// The worker has ended without a word to the client, which is to be told this.
    #[error("{0}")]
    Lost(Refusal),
    #[error("{0}")]
    Broken(#[from] io::Error),
}

impl From<HandshakeError> for Failure {
    fn from(error: HandshakeError) -> Failure {
        Failure::Refused(Refusal::from(&error))
    }
}

fn refuse(code: RefusalCode, sentence: impl Into<String>) -> Failure {
    Failure::Refused(Refusal { code, sentence: sentence.into() })
}

/// Who has said nothing is not waited for.
const BRIEFLY: Duration = Duration::from_millis(100);

/// Who has not shown who it is learns so after this time.
const NOT_AUTHENTICATED_AFTER: Duration = Duration::from_millis(100);

/// Reads the hello and does what it asks for. `seat` is held until it is known who the client is, and while it is turned away.
pub(super) async fn admit(
    supervisor: &Supervisor,
    mut stream: impl Connection,
    peer: Peer,
    seat: Seat,
    deadline: Instant,
) {
    let hello = tokio::select! {
        biased;
        hello = timeout_at(deadline, read_hello(&mut stream)) => hello,
        () = seat.is_wanted() => {
            tracing::debug!(%peer, "a client that says nothing makes room for another");
            let _ = timeout(BRIEFLY, stream.write_all(&super::too_many().encode(VERSION))).await;
            return;
        }
    };
    let hello = match hello {
        Ok(Ok(_)) if matches!(peer, Peer::Local { admitted: false, .. }) => Err(refuse(
            RefusalCode::NotAllowed,
            "this socket is for the server's own user and root; `outboard serve --socket-access` lets others in",
        )),
        Ok(hello) => hello,
        Err(_) => {
            let refusal = Refusal { code: RefusalCode::BadHello, sentence: "the hello took too long".to_owned() };
            note(supervisor, peer, &refusal);
            let _ = timeout(BRIEFLY, stream.write_all(&refusal.encode(VERSION))).await;
            return;
        }
    };
    let heard = Instant::now();
    let mut seat = Some(seat);
    let is_session = hello.as_ref().is_ok_and(|hello| matches!(hello.purpose, Purpose::Session { .. }));
    let result = match hello {
        Ok(hello) => go_on(supervisor, hello, &mut stream, peer, &mut seat).await,
        Err(failure) => Err(failure),
    };
    if is_session {
        supervisor.tally.started(match &result {
            Ok(()) => Outcome::Welcomed,
            Err(Failure::Refused(_)) => Outcome::Refused,
            Err(_) => Outcome::Failed,
        });
    }
    match result {
        Ok(()) => {}
        Err(Failure::Broken(error)) => tracing::debug!(%peer, %error, "a connection came to nothing"),
        Err(Failure::Refused(refusal) | Failure::Lost(refusal)) => {
            refuse_and_go(supervisor, stream, peer, seat, &refusal, heard).await;
        }
    }
}

/// Notes that a client is refused.
fn note(supervisor: &Supervisor, peer: Peer, refusal: &Refusal) {
    supervisor.tally.refused(refusal.code);
    tracing::info!(%peer, code = %refusal.error(), reason = refusal.sentence, "refused");
}

/// Tells a client whose hello was heard then that it is refused. Only as many as have seats are waited for, so that those who do not go are no more
/// than that.
pub(super) async fn refuse_and_go(
    supervisor: &Supervisor,
    mut stream: impl Connection,
    peer: Peer,
    seat: Option<Seat>,
    refusal: &Refusal,
    heard: Instant,
) {
    note(supervisor, peer, refusal);
    let Some(seat) = seat.or_else(|| supervisor.hellos.enter(peer.origin())) else {
        let _ = timeout(BRIEFLY, stream.write_all(&refusal.encode(VERSION))).await;
        return;
    };
    let tell = async {
        if refusal.code == RefusalCode::NotAuthenticated {
            // Whatever was wrong, the answer comes at the same time.
            sleep_until(heard + NOT_AUTHENTICATED_AFTER).await;
        }
        // The client may be gone; it was to be turned away in any case.
        let _ = timeout(supervisor.config.hello_timeout, turn_away(&mut stream, refusal)).await;
    };
    tokio::select! {
        biased;
        () = tell => {}
        () = seat.is_wanted() => tracing::debug!(%peer, "a client that was refused makes room for another"),
    }
}

async fn read_hello(stream: &mut impl Connection) -> Result<Hello, Failure> {
    let mut head = [0; Preamble::SIZE];
    stream.read_exact(&mut head).await?;
    let preamble = Preamble::decode(&head, HELLO_LIMIT)?;
    let mut body = vec![0; preamble.len as usize];
    stream.read_exact(&mut body).await?;
    Ok(Hello::decode(&preamble, &body, VERSION)?)
}

/// Sends the refusal and makes sure it arrives: closing a socket with unread bytes would reset the connection and
/// throw away what was sent.
async fn turn_away(stream: &mut impl Connection, refusal: &Refusal) -> io::Result<()> {
    stream.write_all(&refusal.encode(VERSION)).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 4096];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}

async fn go_on(
    supervisor: &Supervisor,
    mut hello: Hello,
    stream: &mut impl Connection,
    peer: Peer,
    seat: &mut Option<Seat>,
) -> Result<(), Failure> {
    let malformed = |error| Failure::from(HandshakeError::from(error));
    if let Some(refusal) = supervisor.drain.refusal(&hello.purpose) {
        return Err(Failure::Refused(refusal));
    }
    let way = stream.way(peer);
    let secure = secure::look_at(supervisor, &mut hello, &way, peer).map_err(Failure::Refused)?;
    let Hello { version, client: name, process, purpose, more, .. } = hello;
    // Who has a session's key is its owner.
    let client = || -> Result<Client, Failure> {
        let mut identity = supervisor.gate.identify(&more, &way).map_err(Failure::Refused)?;
        identity.limits = identity.limits.and(supervisor.config.sharing.limits);
        // A part that makes no sense is as good as none: it is for people to look at.
        let parent = more.get(TRACE).ok().flatten();
        let wish: Option<Terms> = more.get(RESUME).map_err(malformed)?;
        let grace = wish.and_then(|wish| supervisor.config.resume.grace(wish));
        Ok(Client { name, process, identity, parent, grace })
    };
    let anybody = |_: &Identity| Ok(());
    let encrypted = matches!(way, Way::Secure { .. });
    // Who is known is counted from here on: by the queue, among the sessions, or among those who ask.
    let client = || client().inspect(|_| drop(seat.take()));
    let order = match purpose {
        Purpose::Lane { session, key } => {
            let point = more.get(RESUME).map_err(malformed)?;
            let lane = ToWorker::Lane { secure, point };
            supervisor.sessions.add(session, key, lane, stream.as_fd(), anybody).map_err(Failure::Refused)?;
            tracing::debug!(session, %peer, "lane");
            return Ok(());
        }
        Purpose::Resume { session, key } => {
            let point = more.get(RESUME).map_err(malformed)?;
            let point = point.ok_or_else(|| refuse(RefusalCode::BadHello, "the hello does not say what has come"))?;
            let resume = ToWorker::GoOn { secure, point };
            let may = |identity: &Identity| supervisor.gate.goes_on(identity);
            supervisor.sessions.add(session, key, resume, stream.as_fd(), may).map_err(Failure::Refused)?;
            tracing::info!(session, %peer, attempt = point.attempt, "the client is back");
            return Ok(());
        }
        Purpose::Memory { .. } if matches!(peer, Peer::Remote(_)) => {
            return Err(refuse(RefusalCode::NotAllowed, "memory can be shared over the server's Unix socket only"));
        }
        Purpose::Memory { session, key } => {
            supervisor
                .sessions
                .add(session, key, ToWorker::Memory, stream.as_fd(), anybody)
                .map_err(Failure::Refused)?;
            tracing::debug!(session, %peer, "shared memory");
            return Ok(());
        }
        Purpose::Session { devices } => {
            let client = client()?;
            let came = Instant::now();
            let place = Some(enter(supervisor, &client, &devices, stream, peer, version).await?.1);
            supervisor.tally.waited(came.elapsed());
            Order { devices, place, ..Order::new(client, peer, Kind::Session, encrypted) }
        }
        Purpose::Management { devices } => {
            let platform = supervisor.warm.last_snapshot();
            Order { devices, platform, ..Order::new(client()?, peer, Kind::Management, encrypted) }
        }
        Purpose::Probe => {
            let client = client()?;
            if let Ok(Some(Reserve { devices })) = more.get(RESERVE) {
                let (request, place) = enter(supervisor, &client, &devices, stream, peer, version).await?;
                supervisor.queue.keep(&request, place);
            }
            if let Some(snapshot) = supervisor.warm.snapshot() {
                return tell(supervisor, snapshot, stream).await;
            }
            Order::new(client, peer, Kind::Probe, encrypted)
        }
    };
    if let Some(secure) = start(supervisor, &order, stream.as_fd()).await? {
        timeout(supervisor.config.hello_timeout, secure::send_on(stream, &secure)).await.map_err(io::Error::from)??;
    }
    Ok(())
}

/// Has a client wait for its turn, if it has to.
async fn enter(
    supervisor: &Supervisor,
    client: &Client,
    devices: &[u32],
    stream: &mut impl Connection,
    peer: Peer,
    version: Version,
) -> Result<(Request, Rc<Place>), Failure> {
    let Identity { owner, limits, .. } = &client.identity;
    let request = Request {
        holder: holder(&client.identity, peer),
        owner: owner.clone(),
        owner_sessions: limits.sessions,
        devices: devices.to_vec(),
        memory: limits.memory.unwrap_or(0),
        client: client.name.clone(),
    };
    let may_wait = version >= SPEAKS_OF_WAITING;
    let purpose = Purpose::Session { devices: devices.to_vec() };
    let stopping = || supervisor.drain.refusal_in_queue(&purpose);
    let entered = supervisor.queue.enter(request.clone(), stream, may_wait, stopping).await;
    let place = entered.map_err(|turned| match turned {
        Turned::Away(refusal) => Failure::Refused(refusal),
        Turned::Gone(error) => Failure::Broken(error),
    })?;
    Ok((request, place))
}

/// Who a client is to others: those who have shown nothing are told apart by their machines, and by nothing that they say themselves.
fn holder(identity: &Identity, peer: Peer) -> String {
    match peer {
        Peer::Remote(address) if identity.owner == Identity::ANONYMOUS => {
            format!("{} at {}", identity.owner, address.ip())
        }
        _ => identity.owner.clone(),
    }
}

/// Welcomes a client that only wants to know of the platform.
async fn tell(supervisor: &Supervisor, snapshot: Vec<u8>, stream: &mut impl Connection) -> Result<(), Failure> {
    let (software, lanes) = (env!("CARGO_PKG_VERSION").to_owned(), supervisor.config.lanes);
    let local = supervisor.local.clone();
    let welcome =
        Welcome { version: VERSION, software, session: 0, key: 0, lanes, snapshot, local, more: Extensions::default() }
            .encode();
    // The client need not read it.
    let tell = async {
        stream.write_all(&welcome).await?;
        stream.flush().await
    };
    let _ = timeout(supervisor.config.hello_timeout, tell).await;
    Ok(())
}

/// Who has said hello.
#[derive(Clone)]
struct Client {
    name: String,
    process: Process,
    identity: Identity,
    /// The span of the client's that its session is part of.
    parent: Option<TraceParent>,
    /// How long its session is to be kept without a connection.
    grace: Option<Grace>,
}

/// What a new session is to be, and whose.
struct Order {
    kind: Kind,
    devices: Vec<u32>,
    /// What is known of the platform, if no driver is to be started.
    platform: Option<Vec<u8>>,
    client: Client,
    peer: Peer,
    /// Its place among the sessions, if it needs one.
    place: Option<Rc<Place>>,
    /// Whether its connections are to be encrypted.
    encrypted: bool,
}

impl Order {
    fn new(client: Client, peer: Peer, kind: Kind, encrypted: bool) -> Order {
        Order { kind, devices: Vec::new(), platform: None, client, peer, place: None, encrypted }
    }

    fn about(&self) -> About {
        let identity = self.client.identity.clone();
        let (holder, parent) = (holder(&identity, self.peer), self.client.parent);
        About { identity, holder, peer: self.peer.to_string(), kind: self.kind, place: self.place.clone(), parent }
    }
}

/// Has a worker, one that is warm if there is one, and waits until it has welcomed the client; or, if connections are encrypted, until it waits for
/// the client: then how the client gets there.
async fn start(supervisor: &Supervisor, order: &Order, stream: BorrowedFd<'_>) -> Result<Option<Secure>, Failure> {
    let config = &supervisor.config;
    let room = || {
        let sentence = || format!("the server is at its limit of {} sessions; try again later", config.max_sessions);
        let full = supervisor.sessions.len() >= config.max_sessions;
        if full { Err(refuse(RefusalCode::Busy, sentence())) } else { Ok(()) }
    };
    room()?;
    if order.kind != Kind::Session
        && supervisor.sessions.questions_of(&holder(&order.client.identity, order.peer)) >= MOST_QUESTIONS
    {
        let sentence = format!("{MOST_QUESTIONS} programs of yours ask this server about its devices already");
        return Err(refuse(RefusalCode::OverLimit, sentence));
    }
    if order.kind != Kind::Probe
        && order.platform.is_none()
        && let Some(worker) = supervisor.warm.take().await
    {
        // Others may have come meanwhile.
        room()?;
        match hand_over(supervisor, order, stream, worker, true).await {
            // It may have died before anybody noticed; the client has not heard from it.
            Err(Failure::Lost(refusal)) => tracing::warn!(reason = refusal.sentence, "a warm worker was of no use"),
            outcome => return outcome,
        }
        room()?;
    }
    let command = workers::Order { command: &config.worker, log_format: config.log_format };
    let worker = Worker::spawn(&command).map_err(|error| {
        tracing::error!(%error, program = %config.worker.program.display(), "cannot start a worker");
        refuse(RefusalCode::WorkerFailed, format!("the server cannot start a worker: {error}"))
    })?;
    hand_over(supervisor, order, stream, worker, false).await
}

/// Hands the client to a worker and waits until it has been welcomed.
async fn hand_over(
    supervisor: &Supervisor,
    order: &Order,
    stream: BorrowedFd<'_>,
    worker: Worker,
    warm: bool,
) -> Result<Option<Secure>, Failure> {
    let config = &supervisor.config;
    supervisor.gate.still(&order.client.identity).map_err(Failure::Refused)?;
    let (session, key) = draw()?;
    let Client { name: client, process, identity, grace, .. } = order.client.clone();
    let (owner, token) = (&identity.owner, identity.token.as_deref());
    tracing::info!(session, peer = %order.peer, client, owner, token, kind = ?order.kind, warm, worker = worker.id(), "session starts");
    let (probe, devices, platform) = (order.kind == Kind::Probe, order.devices.clone(), order.platform.clone());
    let (lanes, local) = (config.lanes, supervisor.local.clone());
    let supervisor_id = std::process::id();
    let made = order.encrypted.then(certificate::for_a_session).transpose().map_err(io::Error::other)?;
    let go_there = made.as_ref().map(|(certificate, _)| Secure { fingerprint: Fingerprint::of(certificate).0, key });
    let secure = made.map(|(certificate, key)| control::Secure { certificate, key });
    let start = Start {
        session,
        key,
        lanes,
        probe,
        devices,
        client,
        process,
        identity,
        secure,
        lends: order.place.is_some() && config.sharing.oversubscribe.is_some(),
        only_questions: order.kind == Kind::Management,
        supervisor: supervisor_id,
        grace,
        local,
        platform,
    };
    let lost = |reason: String| {
        let sentence = format!("the server's worker ended before it could serve ({reason}); its log has the reason");
        Failure::Lost(Refusal { code: RefusalCode::WorkerFailed, sentence })
    };
    let welcomed =
        supervisor.sessions.open(worker, start, order.about(), stream).map_err(|error| lost(error.to_string()))?;
    match timeout(config.start_timeout, welcomed).await {
        Ok(Ok(Ok(()))) => Ok(go_there),
        Ok(Ok(Err(Unwelcome::Refused(refusal)))) => Err(Failure::Refused(refusal)),
        Ok(Ok(Err(Unwelcome::Ended(reason)))) => Err(lost(reason)),
        // The session's task ended without a word: the server is stopping.
        Ok(Err(_)) => Err(refuse(RefusalCode::Stopping, "the server is stopping")),
        Err(_) => {
            supervisor.sessions.kill(session);
            Err(refuse(RefusalCode::WorkerFailed, "the server's worker took too long to start"))
        }
    }
}

/// A session's number and key, neither to be guessed.
fn draw() -> io::Result<(u64, u128)> {
    let bytes = outboard_transport::random::<24>()?;
    let mut reader = outboard_wire::Reader::new(&bytes);
    match (reader.u64(), reader.u128()) {
        (Ok(session), Ok(key)) => Ok((session, key)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
