//! Acts on the purpose of a client's connection.

use std::io;
use std::rc::Rc;

use outboard_wire::handshake::resume::{RESUME, Terms};
use outboard_wire::handshake::sharing::{RESERVE, Reserve};
use outboard_wire::handshake::windows::{Acceptable, WINDOWS};
use outboard_wire::handshake::{
    Extensions, HandshakeError, Hello, Purpose, RefusalCode, TRACE, VERSION, Version, Welcome,
};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::order::{Client, Order, holder, start};
use super::{Failure, refuse};
use crate::auth::Way;
use crate::hellos::Seat;
use crate::peer::{Connection, Peer, too_many};
use crate::sessions::Kind;
use crate::sharing::{AdmittedPlace, Request, Turned};
use crate::{Supervisor, secure};
use outboard_control::identity::Identity;
use outboard_control::messages::ToWorker;
use outboard_control::number::Number;

/// Since this version, clients understand that they have to wait.
const SPEAKS_OF_WAITING: Version = Version { major: 1, minor: 4 };

/// Does what a client asks for in its hello.
pub(super) async fn serve(
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
    // A client with a session's key is its owner.
    let client = || -> Result<Client, Failure> {
        let mut identity = supervisor.gate.identify(&more, &way).map_err(Failure::Refused)?;
        identity.limits = identity.limits.and(supervisor.config.sharing.limits);
        // A part that makes no sense is as good as none: it is for people to look at.
        let parent = more.get(TRACE).ok().flatten();
        let wish: Option<Terms> = more.get(RESUME).map_err(malformed)?;
        let grace = wish.and_then(|wish| supervisor.config.resume.grace(wish));
        let accepted: Option<Acceptable> = more.get(WINDOWS).map_err(malformed)?;
        let windows = accepted.map(|Acceptable(windows)| windows);
        Ok(Client { name, process, identity, parent, grace, windows })
    };
    let anybody = |_: &Identity| Ok(());
    let encrypted = matches!(way, Way::Secure { .. });
    // An authenticated client is counted from here on: in the queue, as a session, or as a client
    // with queries.
    let client = || client().inspect(|_| drop(seat.take()));
    let order = match purpose {
        Purpose::Lane { session, key } => {
            let point = more.get(RESUME).map_err(malformed)?;
            let lane = match point {
                Some(point) => ToWorker::ResumableLane { secure, point },
                None => ToWorker::Lane { secure },
            };
            supervisor
                .sessions
                .add(session, key, lane, stream.as_fd(), anybody)
                .map_err(Failure::Refused)?;
            tracing::debug!(session = %Number(session), %peer, "lane");
            return Ok(());
        }
        Purpose::Resume { session, key } => {
            let point = more.get(RESUME).map_err(malformed)?;
            let point = point.ok_or_else(|| {
                refuse(RefusalCode::BadHello, "the hello does not say what has come")
            })?;
            let resume = ToWorker::GoOn { secure, point };
            let may = |identity: &Identity| supervisor.gate.goes_on(identity);
            supervisor
                .sessions
                .add(session, key, resume, stream.as_fd(), may)
                .map_err(Failure::Refused)?;
            tracing::info!(session = %Number(session), %peer, attempt = point.attempt, "the client is back");
            return Ok(());
        }
        Purpose::Memory { .. } if matches!(peer, Peer::Remote(_)) => {
            return Err(refuse(
                RefusalCode::NotAllowed,
                "memory can be shared over the server's Unix socket only",
            ));
        }
        Purpose::Memory { session, key } => {
            supervisor
                .sessions
                .add(session, key, ToWorker::Memory, stream.as_fd(), anybody)
                .map_err(Failure::Refused)?;
            tracing::debug!(session = %Number(session), %peer, "shared memory");
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
                let (request, place) =
                    enter(supervisor, &client, &devices, stream, peer, version).await?;
                supervisor.queue.keep(&request, place);
            }
            if let Some(snapshot) = supervisor.warm.snapshot() {
                return tell(supervisor, snapshot, stream, peer).await;
            }
            Order::new(client, peer, Kind::Probe, encrypted)
        }
    };
    if let Some(secure) = start(supervisor, &order, stream.as_fd()).await? {
        timeout(supervisor.config.hello_timeout, secure::send_on(stream, &secure))
            .await
            .map_err(io::Error::from)??;
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
) -> Result<(Request, Rc<AdmittedPlace>), Failure> {
    // A device that does not exist would block a place in the queue.
    if let Some(count) = supervisor.warm.known_devices()
        && let Some(index) = devices.iter().find(|index| **index as usize >= count)
    {
        let sentence = format!("the server has no device {index}: it has {count}, numbered from 0");
        return Err(refuse(RefusalCode::NoDevice, sentence));
    }
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

/// Welcomes a client that only wants to know of the platform.
async fn tell(
    supervisor: &Supervisor,
    snapshot: Vec<u8>,
    stream: &mut impl Connection,
    peer: Peer,
) -> Result<(), Failure> {
    let seat =
        supervisor.hellos.enter(peer.origin()).ok_or_else(|| Failure::Refused(too_many()))?;
    let (software, lanes) = (env!("CARGO_PKG_VERSION").to_owned(), supervisor.config.lanes);
    let local = supervisor.local.clone();
    let welcome = Welcome {
        version: VERSION,
        software,
        session: 0,
        key: 0,
        lanes,
        snapshot,
        local,
        more: Extensions::default(),
    }
    .encode();
    // The client need not read it, and makes room for others if it does not.
    let tell = async {
        stream.write_all(&welcome).await?;
        stream.flush().await
    };
    tokio::select! {
        biased;
        _ = timeout(supervisor.config.hello_timeout, tell) => {}
        () = seat.is_wanted() => {}
    }
    Ok(())
}
