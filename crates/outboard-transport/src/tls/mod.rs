//! TLS 1.3 over another stream: rustls shakes hands and makes the keys, and the records are made
//! here, since rustls copies each byte twice more and has one lock for both directions; or by the
//! [`kernel`].
//!
//! [`connect`] and [`accept`] shake hands and make a [`Stream`] of what they are given. The
//! [`Anchor`] says which server a client trusts.

mod config;
mod handshake;
mod incoming;
pub mod kernel;
mod keys;
mod outgoing;
mod pem;
mod shake;
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
pub use kernel::Records;
pub use pem::{PemError, certificates_in};
pub use shake::in_the_clear;
pub use stream::TlsStream;

/// The name in the certificate of a session, which workers have; it is recognised by its
/// fingerprint.
pub const SESSION: &str = "outboard";

use crate::stream::Stream;
use handshake::Side;
use keys::failure;
use shake::{Shaken, shake_hands};

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
    records: Records,
    deadline: Instant,
) -> io::Result<Arc<dyn Stream>> {
    with(client(below, config, host, |_| first.into(), deadline)?, records)
}

/// The same for a stream that can be [left](TlsStream::leave), with first bytes that depend on the
/// server's certificate.
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
    TlsStream::over(client(below, config, host, first, deadline)?)
}

fn client<'a>(
    below: Arc<dyn Stream>,
    config: Arc<ClientConfig>,
    host: &str,
    first: impl FnOnce(Option<Fingerprint>) -> Cow<'a, [u8]>,
    deadline: Instant,
) -> io::Result<Shaken> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("`{host}` is no name of a server"))
    })?;
    let connection = UnbufferedClientConnection::new(config, name).map_err(failure)?;
    shake_hands(below, Side::Client(connection), first, deadline)
}

/// Makes the handshake as the server.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] after the deadline, or why the handshake failed.
pub fn accept(
    below: Arc<dyn Stream>,
    config: Arc<ServerConfig>,
    records: Records,
    deadline: Instant,
) -> io::Result<Arc<dyn Stream>> {
    with(server(below, config, deadline)?, records)
}

fn server(
    below: Arc<dyn Stream>,
    config: Arc<ServerConfig>,
    deadline: Instant,
) -> io::Result<Shaken> {
    let connection = UnbufferedServerConnection::new(config).map_err(failure)?;
    let nothing = |_| Cow::Borrowed(&[][..]);
    shake_hands(below, Side::Server(connection), nothing, deadline)
}

/// The stream whose records are made so.
fn with(shaken: Shaken, records: Records) -> io::Result<Arc<dyn Stream>> {
    let shaken = match records {
        Records::Here => shaken,
        Records::Kernel(kernel) => match kernel::take_over(shaken, kernel)? {
            Ok(stream) => return Ok(stream),
            Err(shaken) => shaken,
        },
    };
    Ok(TlsStream::over(shaken)?)
}

#[cfg(test)]
pub(crate) mod over;
#[cfg(test)]
mod tests;
