//! A session, or another connection that needs a worker, before it has a worker.

use std::io;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use outboard_transport::tls::Fingerprint;
use outboard_wire::handshake::auth::Secure;
use outboard_wire::handshake::{Refusal, RefusalCode};
use outboard_wire::window::Window;
use tokio::time::timeout;

use super::client::{Admitted, Client, Devices, Known, asker};
use super::failure::{Failure, refuse};
use crate::about::{About, Kind};
use crate::peer::Peer;
use crate::regions;
use crate::sessions::Unwelcome;
use crate::sharing::AdmittedPlace;
use crate::supervisor::Supervisor;
use crate::tally::Given;
use crate::warm::{self, Taken};
use crate::workers::Worker;
use outboard_auth::certificate;
use outboard_control::messages::{self, Start};
use outboard_control::number::Number;

/// Connections of one owner, or one machine of those that have shown nothing, that only ask and
/// need a worker for that.
const MOST_QUESTIONS: usize = 64;

/// How many connections with queries one holder may have if `all` may be open: a quarter is left
/// for others.
fn most_questions_of_one(all: usize) -> usize {
    (all - all / 4).clamp(1, MOST_QUESTIONS)
}

/// What a new session is to be, and whose.
pub(super) struct Order {
    kind: Kind,
    devices: Devices,
    /// What is known of the platform, if no driver is to be started.
    platform: Option<Vec<u8>>,
    client: Client,
    peer: Peer,
    /// Its place among the sessions, if it needs one.
    place: Option<Rc<AdmittedPlace>>,
    /// Whether its connections are to be encrypted.
    encrypted: bool,
}

impl Order {
    /// A session of a client that has been admitted.
    pub(super) fn session(admitted: Admitted) -> Order {
        let (known, devices, place) = admitted.into_parts();
        Order { devices, place: Some(place), ..Order::new(known, Kind::Session) }
    }

    /// A worker that answers questions about devices; `platform` is what is known of them.
    pub(super) fn management(known: Known, devices: Devices, platform: Option<Vec<u8>>) -> Order {
        Order { devices, platform, ..Order::new(known, Kind::Management) }
    }

    /// A worker that says what the platform is; it finds out unless that is known.
    pub(super) fn probe(known: Known, devices: Devices, platform: Option<Vec<u8>>) -> Order {
        Order { devices, platform, ..Order::new(known, Kind::Probe) }
    }

    fn new(known: Known, kind: Kind) -> Order {
        let (client, peer, encrypted) = known.into_parts();
        Order {
            kind,
            devices: Devices::default(),
            platform: None,
            client,
            peer,
            place: None,
            encrypted,
        }
    }

    fn about(&self) -> About {
        let identity = self.client.identity.clone();
        let (holder, asker) = (self.client.holder(self.peer), asker(&identity, self.peer));
        let parent = self.client.parent;
        About {
            identity,
            holder,
            asker,
            peer: self.peer.to_string(),
            kind: self.kind,
            place: self.place.clone(),
            lease: self.client.lease.clone(),
            parent,
        }
    }
}

/// Has a worker, one that is warm if there is one, and waits until it has welcomed the client; or,
/// if connections are encrypted, until it waits for the client: then how the client gets there.
pub(super) async fn start(
    supervisor: &Supervisor,
    order: &Order,
    stream: BorrowedFd<'_>,
) -> Result<Option<Secure>, Failure> {
    let config = &supervisor.config;
    let room = || {
        let most = supervisor.parts.sessions;
        let sentence = || format!("the server is at its limit of {most} workers; try again later");
        if supervisor.sessions_left() == 0 {
            Err(refuse(RefusalCode::Busy, sentence()))
        } else {
            Ok(())
        }
    };
    room()?;
    if order.kind != Kind::Session {
        let (own, all) =
            supervisor.sessions.questions_of(&asker(&order.client.identity, order.peer));
        let most = supervisor.questions;
        let most_own = most_questions_of_one(most);
        if own >= most_own {
            let sentence =
                format!("{most_own} programs of yours ask this server about its devices already");
            return Err(refuse(RefusalCode::OverLimit, sentence));
        }
        if all >= most {
            let sentence = format!(
                "{most} programs ask this server about its devices already; try again later"
            );
            return Err(refuse(RefusalCode::Busy, sentence));
        }
    }
    if order.kind == Kind::Session {
        let identity = &order.client.identity;
        supervisor.warm.came(&order.client.holder(order.peer), identity.limits.sessions);
    }
    if order.kind != Kind::Probe
        && order.platform.is_none()
        && let Some(Taken { worker, ready, window }) =
            supervisor.warm.take(order.client.windows.as_deref()).await
    {
        // Others may have come meanwhile.
        room()?;
        let _cold = (!ready).then(|| supervisor.warm.cold());
        supervisor.tally.given(if ready { Given::Ready } else { Given::Starting });
        // A client that has named none is not offered one.
        let window = window.filter(|_| order.client.windows.is_some());
        match hand_over(supervisor, order, stream, worker, (window, true)).await {
            // It may have died before anybody noticed; the client has not heard from it.
            Err(Failure::Lost(refusal)) => {
                tracing::warn!(reason = refusal.sentence, "a warm worker was of no use")
            }
            outcome => return outcome,
        }
        room()?;
    }
    let worker = Worker::spawn(&supervisor.worker_order()).map_err(|error| {
        tracing::error!(%error, program = %config.worker.program.display(), "cannot start a worker");
        refuse(RefusalCode::WorkerFailed, format!("the server cannot start a worker: {error}"))
    })?;
    let _cold = order.platform.is_none().then(|| supervisor.warm.cold());
    supervisor.tally.given(Given::New);
    let window = warm::first_acceptable(order.client.windows.as_deref())
        .filter(|_| order.platform.is_none());
    hand_over(supervisor, order, stream, worker, (window, false)).await
}

/// Hands the client to a worker, which has this window and may be warm, and waits until it has been
/// welcomed.
async fn hand_over(
    supervisor: &Supervisor,
    order: &Order,
    stream: BorrowedFd<'_>,
    worker: Worker,
    (window, warm): (Option<Window>, bool),
) -> Result<Option<Secure>, Failure> {
    let config = &supervisor.config;
    supervisor.gate.still(&order.client.identity).map_err(Failure::Refused)?;
    if let Some(refusal) = order.client.lease_over() {
        return Err(Failure::Refused(refusal));
    }
    let (session, key) = draw()?;
    let Client { name: client, process, identity, grace, .. } = order.client.clone();
    let (owner, token) = (&identity.owner, identity.token.as_deref());
    let lease = order.client.lease.as_ref().map(|held| held.number().0);
    tracing::info!(session = %Number(session), peer = %order.peer, client, owner, token, lease, kind = ?order.kind, warm, window = window.map(tracing::field::display), worker = worker.id(), "session starts");
    let (probe, platform) = (order.kind == Kind::Probe, order.platform.clone());
    let Devices { indices: devices, parts } = order.devices.clone();
    let guest = matches!(order.peer, Peer::Guest(_));
    let (lanes, local) = (config.lanes, supervisor.local.clone());
    let supervisor_id = std::process::id();
    let made =
        order.encrypted.then(certificate::for_a_session).transpose().map_err(io::Error::other)?;
    let go_there = made
        .as_ref()
        .map(|(certificate, _)| Secure { fingerprint: Fingerprint::of(certificate).0, key });
    let secure = made.map(|(certificate, key)| messages::Secure { certificate, key });
    let wanted = order.client.region.filter(|_| order.kind == Kind::Session);
    let (region, no_region) = match wanted.map(|id| regions::allot(&config.regions, id)) {
        None => (None, None),
        Some(Ok(region)) => (Some(region), None),
        Some(Err(why)) => {
            tracing::info!(session = %Number(session), why, "the session gets no part of a region");
            (None, Some(why))
        }
    };
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
        guest,
        local,
        platform,
        parts,
        peers: supervisor.sessions.peers().filter(|_| order.kind == Kind::Session),
        window,
        rdma: config.rdma.clone().filter(|_| order.kind != Kind::Management),
        client_has_adapters: order.client.has_adapters,
        no_region,
    };
    let lost = |reason: String| {
        let sentence = format!(
            "the server's worker ended before it could serve ({reason}); its log has the reason"
        );
        Failure::Lost(Refusal { code: RefusalCode::WorkerFailed, sentence })
    };
    let welcomed = supervisor
        .sessions
        .open(worker, start, order.about(), (stream, region.as_ref()))
        .map_err(|error| lost(error.to_string()))?;
    match timeout(config.start_timeout, welcomed).await {
        Ok(Ok(Ok(()))) => Ok(go_there),
        Ok(Ok(Err(Unwelcome::Refused(refusal)))) => Err(Failure::Refused(refusal)),
        Ok(Ok(Err(Unwelcome::Ended(reason)))) => Err(lost(reason)),
        // The session's task ended without an answer: the server is stopping.
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
