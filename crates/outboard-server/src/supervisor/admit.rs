//! From a new connection to a worker that serves it.

use std::io;

use outboard_wire::handshake::{
    HELLO_LIMIT, HandshakeError, Hello, Preamble, Process, Purpose, Refusal, RefusalCode, VERSION,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::workers::{Order, Worker};
use super::{Connection, Peer, Supervisor};
use crate::control::{Start, ToWorker};

/// Why a connection came to nothing.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Refused(Refusal),
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

/// Reads the hello and does what it asks for. `permit` is held while the client is at its hello.
pub(super) async fn admit(
    supervisor: &Supervisor,
    mut stream: impl Connection,
    peer: Peer,
    permit: OwnedSemaphorePermit,
) {
    let hello = match timeout(supervisor.config.hello_timeout, read_hello(&mut stream)).await {
        Ok(Ok(_)) if matches!(peer, Peer::Local { admitted: false, .. }) => Err(refuse(
            RefusalCode::NotAllowed,
            "this socket is for the server's own user and root; `outboard serve --socket-access` lets others in",
        )),
        Ok(hello) => hello,
        Err(_) => Err(refuse(RefusalCode::BadHello, "the hello took too long")),
    };
    drop(permit);
    let result = match hello {
        Ok(hello) => go_on(supervisor, hello, &stream, peer).await,
        Err(failure) => Err(failure),
    };
    match result {
        Ok(()) => {}
        Err(Failure::Broken(error)) => tracing::debug!(%peer, %error, "a connection came to nothing"),
        Err(Failure::Refused(refusal)) => {
            tracing::info!(%peer, code = ?refusal.code, reason = refusal.sentence, "refused");
            // The client may be gone; it was to be turned away in any case.
            let _ = timeout(supervisor.config.hello_timeout, turn_away(&mut stream, &refusal)).await;
        }
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

async fn go_on(supervisor: &Supervisor, hello: Hello, stream: &impl Connection, peer: Peer) -> Result<(), Failure> {
    let client = (hello.client, hello.process);
    match hello.purpose {
        Purpose::Lane { session, key } => {
            supervisor.sessions.add(session, key, ToWorker::Lane, stream.as_fd()).map_err(Failure::Refused)?;
            tracing::debug!(session, %peer, "lane");
            Ok(())
        }
        Purpose::Memory { .. } if matches!(peer, Peer::Remote(_)) => {
            Err(refuse(RefusalCode::NotAllowed, "memory can be shared over the server's Unix socket only"))
        }
        Purpose::Memory { session, key } => {
            supervisor.sessions.add(session, key, ToWorker::Memory, stream.as_fd()).map_err(Failure::Refused)?;
            tracing::debug!(session, %peer, "shared memory");
            Ok(())
        }
        Purpose::Session { devices } => start(supervisor, false, devices, client, stream, peer).await,
        Purpose::Probe => start(supervisor, true, Vec::new(), client, stream, peer).await,
    }
}

/// Starts a worker and waits until it has welcomed the client.
async fn start(
    supervisor: &Supervisor,
    probe: bool,
    devices: Vec<u32>,
    (client, process): (String, Process),
    stream: &impl Connection,
    peer: Peer,
) -> Result<(), Failure> {
    let config = &supervisor.config;
    if supervisor.sessions.len() >= config.max_sessions {
        let sentence = format!("the server is at its limit of {} sessions; try again later", config.max_sessions);
        return Err(refuse(RefusalCode::Busy, sentence));
    }
    let (session, key) = identity()?;
    let order = Order { command: &config.worker, log_format: config.log_format };
    let worker = Worker::spawn(&order).map_err(|error| {
        tracing::error!(%error, program = %config.worker.program.display(), "cannot start a worker");
        refuse(RefusalCode::WorkerFailed, format!("the server cannot start a worker: {error}"))
    })?;
    tracing::info!(session, %peer, client, probe, worker = worker.id(), "session starts");
    let (lanes, local) = (config.lanes, supervisor.local.clone());
    let start = Start { session, key, lanes, probe, devices, client, process, supervisor: std::process::id(), local };
    let welcomed = supervisor.sessions.open(worker, start, stream.as_fd())?;
    match timeout(config.start_timeout, welcomed).await {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(Ok(Err(refusal))) => Err(Failure::Refused(refusal)),
        // The session's task ended without a word: the server is stopping.
        Ok(Err(_)) => Err(refuse(RefusalCode::Stopping, "the server is stopping")),
        Err(_) => {
            supervisor.sessions.kill(session);
            Err(refuse(RefusalCode::WorkerFailed, "the server's worker took too long to start"))
        }
    }
}

/// A session's number and key, neither to be guessed.
fn identity() -> io::Result<(u64, u128)> {
    let mut bytes = [0; 24];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
    }
    let mut reader = outboard_wire::Reader::new(&bytes);
    match (reader.u64(), reader.u128()) {
        (Ok(session), Ok(key)) => Ok((session, key)),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
