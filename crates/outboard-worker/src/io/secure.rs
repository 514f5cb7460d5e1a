//! Connections of the client that are encrypted: the worker has a certificate of its session's own,
//! never the server's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outboard_transport::{Stream, read_exact_until, tls};
use outboard_wire::limits::MAX_LANES;
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
    /// Lanes that are shaking hands.
    opening: Arc<AtomicUsize>,
}

impl Secure {
    /// For the session that is to start, if its connections are encrypted.
    pub(super) fn new(start: &Start) -> io::Result<Option<Secure>> {
        let Some(secure) = &start.secure else { return Ok(None) };
        let chain = vec![secure.certificate.clone().into()];
        let key = PrivatePkcs8KeyDer::from(secure.key.clone());
        let config = tls::server_config(chain, key.into(), None).map_err(io::Error::other)?;
        Ok(Some(Secure { config: Arc::new(config), key: start.key, opening: Arc::default() }))
    }

    /// Encrypts a connection, whose peer has to show the session's key first: it may be another one
    /// than the supervisor has talked to.
    pub(super) fn accept(&self, below: Arc<dyn Stream>) -> io::Result<Arc<dyn Stream>> {
        self.accept_with(below, self.key)
    }

    fn accept_with(&self, below: Arc<dyn Stream>, key: u128) -> io::Result<Arc<dyn Stream>> {
        let deadline = Instant::now() + PATIENCE;
        let stream = tls::accept(below, Arc::clone(&self.config), deadline)?;
        let mut shown = [0; 16];
        read_exact_until(&*stream, &mut shown, deadline)?;
        if bool::from(shown.ct_eq(&key.to_le_bytes())) {
            Ok(stream)
        } else {
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the other side does not have the key that it should",
            ))
        }
    }

    /// Encrypts a lane in a thread of its own, so that no lane waits for another, and hands it to
    /// `then`. Its peer has to show this key.
    pub(super) fn accept_lane(
        &self,
        below: Arc<dyn Stream>,
        key: u128,
        then: impl FnOnce(Arc<dyn Stream>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        if self.opening.fetch_add(1, Ordering::Relaxed) >= MAX_LANES {
            self.opening.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other("too many lanes are shaking hands"));
        }
        let secure = self.clone();
        let shake = move || {
            let opened = secure.accept_with(below, key);
            secure.opening.fetch_sub(1, Ordering::Relaxed);
            if let Err(error) = opened.and_then(then) {
                tracing::warn!(%error, "a lane cannot be used");
            }
        };
        std::thread::Builder::new().name("lane-open".to_owned()).spawn(shake).map(drop)
    }
}
