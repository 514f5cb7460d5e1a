//! The address at which the broker listens, and who is let in.

use super::body::Bodies;
use super::connection::{Room, attend};
use super::places::Places;
use crate::front::Front;
use crate::run::BrokerError;
use outboard_auth::hellos::{Origin, Seats, machine};
use outboard_auth::{AuthError, certificate, clients};
use outboard_transport::tls::{Fingerprint, server_config};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The most connections of those who have not shown who they are.
const STRANGERS: usize = 1024;
/// A stranger has so long before another may take its seat.
const FAIR: Duration = Duration::from_millis(500);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;
/// After an error the system has a while to recover.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// By what callers know the broker, and it knows them.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// The certificate chain in PEM; without it the broker makes one.
    pub certificate: Option<PathBuf>,
    /// Its key.
    pub key: Option<PathBuf>,
    /// Authorities whose certificates callers may show, in PEM.
    pub client_ca: Option<PathBuf>,
}

/// The open address.
pub(crate) struct Listener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) address: SocketAddr,
}

fn acceptor(security: &Security, state: &Path) -> Result<(TlsAcceptor, Fingerprint), AuthError> {
    let (path, key) = match (&security.certificate, &security.key) {
        (Some(path), Some(key)) => (path.clone(), key.clone()),
        (Some(_), None) => return Err(AuthError::Half { given: "--tls-cert" }),
        (None, Some(_)) => return Err(AuthError::Half { given: "--tls-key" }),
        (None, None) => certificate::own(state)?,
    };
    let callers = security.client_ca.as_deref().map(clients::verifier).transpose()?;
    let (chain, secret) = certificate::read_chain(&path, &key)?;
    let fingerprint = certificate::fingerprint(&path)?;
    let settings = server_config(chain, secret, callers)
        .map_err(|error| AuthError::file("the certificate", &path, error))?;
    Ok((TlsAcceptor::from(Arc::new(settings)), fingerprint))
}

impl Listener {
    pub(crate) async fn open(
        address: &str,
        security: &Security,
        state: &Path,
    ) -> Result<Listener, BrokerError> {
        let (acceptor, fingerprint) = acceptor(security, state)?;
        let failed = |error: io::Error| BrokerError::Listen { address: address.into(), error };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if let Err(error) = rustix::net::listen(&listener, BACKLOG) {
            tracing::debug!(%error, "few connections may wait to be accepted");
        }
        Ok(Listener { listener, acceptor, fingerprint, address })
    }

    /// Attends to all who come, each in a task of its own. Never ends.
    pub(crate) async fn serve(self, front: Rc<Front>) {
        let seats = Seats::new(STRANGERS, FAIR);
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let places = Rc::new(Places::new(usize::try_from(files).unwrap_or(usize::MAX)));
        let bodies = Rc::new(Bodies::default());
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Meanwhile others wait to be accepted.
            let from = Origin::Machine(machine(peer.ip()));
            let Some(seat) = seats.enter_or_wait(from).await else { continue };
            let acceptor = self.acceptor.clone();
            let (places, bodies) = (Rc::clone(&places), Rc::clone(&bodies));
            let room = Room { front: Rc::clone(&front), places, bodies };
            tokio::task::spawn_local(attend(room, stream, acceptor, seat));
            // The connection that makes room is closed before the next one is accepted.
            tokio::task::yield_now().await;
        }
    }
}
