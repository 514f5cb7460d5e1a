//! TLS 1.3 over another stream: rustls shakes hands and makes the keys, and the records are made
//! here, since rustls copies each byte twice more and has one lock for both directions.
//!
//! [`connect`] and [`accept`] shake hands and make a [`Stream`] of what they are given. The
//! [`Anchor`] says which server a client trusts.

mod config;
mod handshake;
mod incoming;
mod keys;
mod outgoing;
mod pem;
mod stream;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::{ClientConfig, ServerConfig};

pub use config::{
    Anchor, Fingerprint, SetupError, client_config, provider, seal, server_config, tag, ticket,
};
pub use pem::{PemError, certificates_in};
pub use stream::{TlsStream, in_the_clear};

/// The name in the certificate of a session, which workers have; it is recognised by its
/// fingerprint.
pub const SESSION: &str = "outboard";

use crate::stream::Stream;
use handshake::Side;
use keys::failure;

/// The first byte that a TLS client sends: the type of a record with a handshake message.
pub const FIRST_BYTE: u8 = 0x16;

/// Makes the handshake as the client, and sends `first` with its last message. `host` is the
/// server's name or address, which a certificate of an authority must carry.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if `host` is no server's name, [`io::ErrorKind::TimedOut`] after
/// the deadline, or why the handshake failed.
pub fn connect(
    below: Arc<dyn Stream>,
    config: Arc<ClientConfig>,
    host: &str,
    first: &[u8],
    deadline: Instant,
) -> io::Result<Arc<TlsStream>> {
    connect_and_say(below, config, host, |_| first.into(), deadline)
}

/// The same, with first bytes that depend on the server's certificate.
///
/// # Errors
/// As [`connect`].
pub fn connect_and_say<'a>(
    below: Arc<dyn Stream>,
    config: Arc<ClientConfig>,
    host: &str,
    first: impl FnOnce(Option<Fingerprint>) -> Cow<'a, [u8]>,
    deadline: Instant,
) -> io::Result<Arc<TlsStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("`{host}` is no name of a server"))
    })?;
    let connection = UnbufferedClientConnection::new(config, name).map_err(failure)?;
    TlsStream::shake_hands(below, Side::Client(connection), first, deadline)
}

/// Makes the handshake as the server.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after the deadline, or why the handshake failed.
pub fn accept(
    below: Arc<dyn Stream>,
    config: Arc<ServerConfig>,
    deadline: Instant,
) -> io::Result<Arc<TlsStream>> {
    let connection = UnbufferedServerConnection::new(config).map_err(failure)?;
    TlsStream::shake_hands(below, Side::Server(connection), |_| Cow::Borrowed(&[]), deadline)
}

#[cfg(test)]
pub(crate) mod over;
#[cfg(test)]
mod tests;
