//! One connection: a stranger's seat until it has shown who it is, then a place among its owner's.

use super::answers::answer;
use super::body::Bodies;
use super::places::{Place, Places};
use crate::front::Front;
use crate::roles::Caller;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use outboard_auth::hellos::Seat;
use outboard_auth::sparing::STRANGERS;
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

/// How long encryption may take to come about.
const TLS_PATIENCE: Duration = Duration::from_secs(5);
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD_PATIENCE: Duration = Duration::from_secs(20);
/// How long a connection may live: who reads slowly holds memory.
const LIFETIME: Duration = Duration::from_secs(600);
/// How long a caller may go on sending what is not read, after its answer. A connection that is
/// closed before would take the answer along.
const REST_PATIENCE: Duration = Duration::from_secs(2);
/// The longest head of a request, in bytes; the library takes no less.
const LONGEST_HEAD: usize = 8192;

/// What all connections have in common.
pub(super) struct Room {
    pub(super) front: Rc<Front>,
    pub(super) places: Rc<Places>,
    pub(super) bodies: Rc<Bodies>,
}

/// Attends to a connection until it ends.
pub(super) async fn attend(room: Room, stream: TcpStream, acceptor: TlsAcceptor, seat: Seat) {
    let (is_known, is_wanted) = (Notify::new(), Rc::new(Notify::new()));
    let serve = serve(&room, stream, acceptor, &is_known, &is_wanted);
    tokio::select! {
        biased;
        () = stranger(seat, &is_known) => {
            tracing::debug!("a connection that has not said who it is makes room for another");
        }
        () = is_wanted.notified() => {
            tracing::debug!("a connection of the owner with the most makes room for another");
        }
        _ = timeout(LIFETIME, serve) => {}
    }
}

/// Returns if a stranger has to make room.
async fn stranger(seat: Seat, is_known: &Notify) {
    tokio::select! {
        biased;
        () = is_known.notified() => {}
        () = seat.is_wanted() => return,
    }
    drop(seat);
    std::future::pending().await
}

async fn serve(
    room: &Room,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    is_known: &Notify,
    is_wanted: &Rc<Notify>,
) {
    // An answer is one write.
    let _ = stream.set_nodelay(true);
    let mut stream = match timeout(TLS_PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            if let Some(left_out) = STRANGERS.admits("no_encryption") {
                tracing::info!(%error, left_out, "no encrypted connection came about");
            }
            return;
        }
        Err(_) => return,
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = shown.map(|certificate| certificate.to_vec());
    let place: RefCell<Option<Place>> = RefCell::new(None);
    let (place, certificate) = (&place, &certificate);
    let take_place = |caller: &Caller| {
        let mut place = place.borrow_mut();
        if place.is_none() {
            *place = room.places.enter(&caller.owner, caller.role, is_wanted);
            is_known.notify_one();
        }
        place.as_ref().map(Place::answer)
    };
    let take_place = &take_place;
    let answer = |request: Request<Incoming>| async move {
        let certificate = certificate.as_deref();
        let answered = answer(&room.front, &room.bodies, request, certificate, take_place);
        Ok::<_, Infallible>(answered.await)
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(&mut stream), service_fn(answer))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection has ended badly");
    }
    let rest = stream.get_mut().0;
    let _ = timeout(REST_PATIENCE, tokio::io::copy(rest, &mut tokio::io::sink())).await;
}
