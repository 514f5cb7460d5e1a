//! One connection: a stranger's seat until it has shown who it is, then one of many places.

use super::answers::answer;
use crate::front::Front;
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
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
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

/// Attends to a connection until it ends.
pub(super) async fn attend(
    front: Rc<Front>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    seat: Seat,
    places: Arc<Semaphore>,
) {
    let is_known = Rc::new(Notify::new());
    let serve = serve(front, stream, acceptor, Rc::clone(&is_known), places);
    tokio::select! {
        biased;
        () = stranger(seat, &is_known) => {
            tracing::debug!("a connection that has not said who it is makes room for another");
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
    front: Rc<Front>,
    stream: TcpStream,
    acceptor: TlsAcceptor,
    is_known: Rc<Notify>,
    places: Arc<Semaphore>,
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
    let place: RefCell<Option<OwnedSemaphorePermit>> = RefCell::new(None);
    let (place, certificate) = (&place, &certificate);
    let take_place = || {
        let mut place = place.borrow_mut();
        if place.is_none() {
            *place = Arc::clone(&places).try_acquire_owned().ok();
            is_known.notify_one();
        }
        place.is_some()
    };
    let take_place = &take_place;
    let front = &front;
    let answer = |request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(front, request, certificate.as_deref(), take_place).await)
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
