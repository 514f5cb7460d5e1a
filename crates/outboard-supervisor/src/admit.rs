//! From a new connection to a worker that serves it.

mod client;
pub(super) mod failure;
mod order;
mod purpose;

use std::io;
use std::time::Duration;

use failure::{Failure, refuse};
use outboard_wire::handshake::{
    HELLO_LIMIT, Hello, Preamble, Purpose, Refusal, RefusalCode, VERSION,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::peer::{Connection, Peer, too_many};
use super::supervisor::Supervisor;
use super::tally::{self, Outcome};
use outboard_auth::hellos::Seat;
use outboard_auth::sparing::STRANGERS;

/// Who has said nothing is not waited for.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(100);

/// A client that has not authenticated itself after this time is told so.
const NOT_AUTHENTICATED_AFTER: Duration = Duration::from_millis(100);

/// Reads the hello and does what it asks for. `seat` is held until the client has authenticated
/// itself, and while it is refused.
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
            let _ = timeout(REFUSAL_TIMEOUT, stream.write_all(&too_many().encode(VERSION))).await;
            return;
        }
    };
    let hello = match hello {
        Ok(Ok(_)) if matches!(peer, Peer::Local { admitted: false, .. }) => Err(refuse(
            RefusalCode::NotAllowed,
            "this socket is for the server's own user and root, and not for workers; `outboard serve --socket-access` lets other users in",
        )),
        Ok(hello) => hello,
        Err(_) => {
            let refusal = Refusal {
                code: RefusalCode::BadHello,
                sentence: "the hello took too long".to_owned(),
            };
            note(supervisor, peer, &refusal);
            let _ = timeout(REFUSAL_TIMEOUT, stream.write_all(&refusal.encode(VERSION))).await;
            return;
        }
    };
    let heard = Instant::now();
    let mut seat = Some(seat);
    let is_session =
        hello.as_ref().is_ok_and(|hello| matches!(hello.purpose, Purpose::Session { .. }));
    let result = match hello {
        Ok(hello) => purpose::serve(supervisor, hello, &mut stream, peer, &mut seat).await,
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
        Err(Failure::Broken(error)) => {
            tracing::debug!(%peer, %error, "a connection came to nothing")
        }
        Err(Failure::Refused(refusal) | Failure::Lost(refusal)) => {
            refuse_and_go(supervisor, stream, peer, seat, &refusal, heard).await;
        }
    }
}

/// Notes that a client is refused.
fn note(supervisor: &Supervisor, peer: Peer, refusal: &Refusal) {
    supervisor.tally.refused(refusal.code);
    if let Some(left_out) = STRANGERS.admits(tally::name(refusal.code)) {
        tracing::info!(%peer, code = %refusal.error(), reason = refusal.sentence, left_out, "refused");
    }
}

/// Tells a client whose hello was heard then that it is refused. The server waits only for clients
/// with seats, so that there are no more of those that do not leave.
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
        let _ = timeout(REFUSAL_TIMEOUT, stream.write_all(&refusal.encode(VERSION))).await;
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

/// Sends the refusal and makes sure it arrives: closing a socket with unread bytes would reset the
/// connection and throw away what was sent.
async fn turn_away(stream: &mut impl Connection, refusal: &Refusal) -> io::Result<()> {
    stream.write_all(&refusal.encode(VERSION)).await?;
    stream.shutdown().await?;
    let mut ignored = [0; 4096];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
