//! Connections of the client that are encrypted: the worker has a certificate of its session's own,
//! never the server's.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::{Stream, read_exact_until, tls};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use subtle::ConstantTimeEq;

use outboard_control::messages::Start;

/// How long a client may take to shake hands.
const PATIENCE: Duration = Duration::from_secs(20);

/// What encrypts the session's connections.
#[derive(Clone)]
pub(super) struct Secure {
    config: Arc<ServerConfig>,
    key: u128,
}

impl Secure {
    /// For the session that is to start, if its connections are encrypted.
    pub(super) fn new(start: &Start) -> io::Result<Option<Secure>> {
        let Some(secure) = &start.secure else { return Ok(None) };
        let chain = vec![secure.certificate.clone().into()];
        let key = PrivatePkcs8KeyDer::from(secure.key.clone());
        let config = tls::server_config(chain, key.into(), None).map_err(io::Error::other)?;
        Ok(Some(Secure { config: Arc::new(config), key: start.key }))
    }

    /// The same for connections whose peers have another key to show.
    pub(super) fn with_key(&self, key: u128) -> Secure {
        Secure { config: Arc::clone(&self.config), key }
    }

    /// Encrypts a connection, whose peer has to show the session's key first: it may be another one
    /// than the supervisor has talked to.
    pub(super) fn accept(&self, below: Arc<dyn Stream>) -> io::Result<Arc<dyn Stream>> {
        let deadline = Instant::now() + PATIENCE;
        let stream = tls::accept(below, Arc::clone(&self.config), deadline)?;
        let mut shown = [0; 16];
        read_exact_until(&*stream, &mut shown, deadline)?;
        if bool::from(shown.ct_eq(&self.key.to_le_bytes())) {
            Ok(stream)
        } else {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the other side does not have the key that it should",
            ))
        }
    }
}
