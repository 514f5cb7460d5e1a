//! Clients that come over TCP or vsock: whether they encrypt is seen by their first byte.
//!
//! A session that is encrypted is so twice: the supervisor, which alone has the server's key, hears
//! the hello; then it sends the client on to the worker, which has a certificate for this session
//! only. A further connection of such a session says hello in the clear, with a proof that the
//! client has the session's key and nothing that is secret, and is the worker's from then on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use outboard_transport::tls::FIRST_BYTE;
use outboard_wire::Code;
use outboard_wire::handshake::auth::{PROOF, Proof, Secure, proven};
use outboard_wire::handshake::peers::{Called, PEERS};
use outboard_wire::handshake::{Hello, Purpose, Refusal, RefusalCode, VERSION};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::server::TlsStream;

use super::admit;
use super::newcomer::Newcomer;
use super::peer::{Connection, Peer, too_many};
use super::supervisor::Supervisor;
use crate::auth::Way;
use outboard_auth::hellos::Seat;
use outboard_auth::sparing::STRANGERS;

/// A connection of which nothing has been read.
pub(super) struct Unknown<S>(pub(super) S);

/// A connection that may be encrypted, which is seen before anything is read.
pub(super) trait Raw: Connection {
    /// Writes what fits.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Waits for bytes, and leaves them to be read.
    async fn peek(&self, into: &mut [u8]) -> io::Result<usize>;
}

impl Raw for TcpStream {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        TcpStream::peek(self, into).await
    }
}

impl<S: Raw> Newcomer for Unknown<S> {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_now(bytes)
    }

    async fn admit(self, supervisor: &Supervisor, peer: Peer, seat: Seat) {
        let deadline = Instant::now() + supervisor.config.hello_timeout;
        let mut first = [0];
        let looked = tokio::select! {
            biased;
            looked = timeout_at(deadline, self.0.peek(&mut first)) => looked,
            () = seat.is_wanted() => {
                tracing::debug!(%peer, "a client that says nothing makes room for another");
                let _ = self.write_now(&too_many().encode(VERSION));
                return;
            }
        };
        if !matches!(looked, Ok(Ok(1..))) || first[0] != FIRST_BYTE {
            return admit::admit(supervisor, self.0, peer, seat, deadline).await;
        }
        let Some(acceptor) = supervisor.gate.acceptor() else {
            let refusal = not_encrypted("this server does not encrypt connections");
            return admit::refuse_and_go(
                supervisor,
                self.0,
                peer,
                Some(seat),
                &refusal,
                Instant::now(),
            )
            .await;
        };
        // An encrypted connection takes a few round trips.
        seat.has_spoken();
        let accepted = tokio::select! {
            biased;
            accepted = timeout_at(deadline, acceptor.accept(self.0)) => accepted,
            () = seat.is_wanted() => return,
        };
        match accepted {
            Ok(Ok(stream)) => {
                admit::admit(supervisor, Encrypted(Box::new(stream)), peer, seat, deadline).await
            }
            Ok(Err(error)) => {
                if let Some(left_out) = STRANGERS.admits("no_encryption") {
                    tracing::info!(%peer, code = %Code::ServerNotTrusted, %error, left_out, "refused: no encrypted connection came about");
                }
            }
            Err(_) => {
                let code = RefusalCode::BadHello.error();
                if let Some(left_out) = STRANGERS.admits("slow_encryption") {
                    tracing::info!(%peer, %code, left_out, "refused: the client took too long to encrypt its connection");
                }
            }
        }
    }
}

fn not_encrypted(sentence: &str) -> Refusal {
    Refusal::new(RefusalCode::NotAuthenticated, Code::NotEncrypted, sentence)
}

/// A connection encrypted with the server's own certificate.
pub(super) struct Encrypted<S>(Box<TlsStream<S>>);

impl<S: Connection> Connection for Encrypted<S> {
    fn way(&self, _: Peer) -> Way {
        let shown = self.0.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        Way::Secure { certificate: shown.map(|certificate| certificate.to_vec()) }
    }

    fn finish(&mut self) {
        self.0.get_mut().1.send_close_notify();
    }
}

impl<S: Connection> AsFd for Encrypted<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().0.as_fd()
    }
}

impl<S: Connection> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl<S: Connection> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

/// Checks that the hello may come this way. If it shows that the client has a session's key, puts
/// the key where it belongs, and says that the connection is encrypted from there on.
pub(super) fn look_at(
    supervisor: &Supervisor,
    hello: &mut Hello,
    way: &Way,
    peer: Peer,
) -> Result<bool, Refusal> {
    let malformed =
        |_| Refusal { code: RefusalCode::BadHello, sentence: "the proof is malformed".to_owned() };
    let proof: Option<Proof> = hello.more.get(PROOF).map_err(malformed)?;
    let called: Option<Called> = match hello.purpose {
        Purpose::Peer { .. } => hello.more.get(PEERS).map_err(malformed)?,
        _ => None,
    };
    let link = called.map(|called| called.link);
    let purpose = hello.purpose.number();
    let Hello { purpose: about, more, .. } = hello;
    let keyed = about.keyed();
    match (way, keyed, proof) {
        (Way::Plain, Some((session, key)), Some(proof)) => {
            *key = supervisor.sessions.proven(
                session,
                link,
                &proof,
                &proven(session, purpose, proof.nonce, more),
            )?;
            Ok(true)
        }
        (Way::Plain, keyed, _) => {
            let must_encrypt = match peer {
                Peer::Remote(address) => supervisor.gate.must_encrypt(address),
                Peer::Guest(_) => supervisor.gate.must_always_encrypt(),
                Peer::Local { .. } => false,
            };
            if must_encrypt {
                return Err(not_encrypted(
                    "this server takes encrypted connections only: set OUTBOARD_TLS_FINGERPRINT (`outboard token fingerprint` prints it on \
                     the server's machine) or OUTBOARD_TLS_CA, and do not set OUTBOARD_TLS=off",
                ));
            }
            match keyed {
                Some((session, _)) if supervisor.sessions.is_secure(session) => {
                    Err(not_encrypted("the connections of this session are encrypted"))
                }
                _ => Ok(false),
            }
        }
        (Way::Secure { .. }, Some(_), _) => {
            let sentence =
                "further connections of a session say hello in the clear, with a proof".to_owned();
            Err(Refusal { code: RefusalCode::BadHello, sentence })
        }
        _ => Ok(false),
    }
}

/// Sends the client on to its worker.
pub(super) async fn send_on(stream: &mut impl Connection, secure: &Secure) -> io::Result<()> {
    stream.write_all(&secure.encode(VERSION)).await?;
    stream.finish();
    stream.flush().await
}
