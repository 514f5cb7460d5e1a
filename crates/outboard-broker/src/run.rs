//! The broker as a process.

use crate::desk::{Desk, Rules};
use crate::http::{Listener, Security};
use crate::service::{RELEASE, Service};
use crate::store::{Keeper, Store, StoreError, signing_key};
use jiff::Timestamp;
use outboard_auth::AuthError;
use outboard_auth::tokens::{self, Known};
use sd_notify::NotifyState;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

/// What the broker is told.
#[derive(Debug)]
pub struct Config {
    /// The address, `HOST:PORT`.
    pub listen: String,
    /// The folder with the file of leases, the keys, the certificate and the tokens.
    pub state: PathBuf,
    /// By what callers know the broker, and it knows them.
    pub security: Security,
    /// How it decides.
    pub rules: Rules,
    /// Whether everybody may see what names nobody.
    pub open_view: bool,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// Tokens or certificates are not as they should be.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// What is kept is not as it should be, or cannot be kept any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system does not play along.
    #[error("the broker cannot run: {0}")]
    System(#[from] io::Error),
}

/// Serves until SIGTERM or SIGINT, or until changes cannot be kept any more.
///
/// # Errors
///
/// If it cannot.
pub fn run(config: &Config) -> Result<(), BrokerError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve(config))
}

async fn serve(config: &Config) -> Result<(), BrokerError> {
    raise_limit();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let state = &config.state;
    // The file comes first: of two brokers, the second changes nothing.
    let store = Store::open(state)?;
    let listener = Listener::open(&config.listen, &config.security, state).await?;
    let key = signing_key(state)?;
    let known = Known::open(state);
    if let Some(problem) = known.problem() {
        return Err(AuthError::file("the tokens", tokens::file(state), problem).into());
    }
    if !known.any() && config.security.client_ca.is_none() {
        tracing::warn!(
            "there are no tokens: `outboard token create --role server|client|admin --state` makes \
             them, also while the broker runs"
        );
    }
    let memory = store.memory()?;
    let (leases, servers) = (memory.leases.len(), memory.servers.len());
    let desk = Desk::new(config.rules.clone(), memory, Timestamp::now());
    let (keeper, failed) = Keeper::start(store)?;
    let (address, fingerprint) = (listener.address, listener.fingerprint);
    tracing::info!(key = %key.public().to_text(), "leases are signed");
    let service = Rc::new(Service::new(desk, keeper, key, known).with_open_view(config.open_view));
    tell_ready(address);
    tracing::info!(%address, %fingerprint, policy = %config.rules.policy, leases, servers, version = RELEASE, "brokering");
    let reason = tokio::select! {
        () = listener.serve(Rc::clone(&service)) => "the address is closed",
        () = service.keep_going() => "changes cannot be kept",
        () = watchdog() => "the watchdog has ended",
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(reason, "stopping");
    tell(&[NotifyState::Stopping]);
    service.finish().await;
    match failed.wait().await {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd cannot be told");
    }
}

fn tell_ready(address: SocketAddr) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("brokering at {address}"))]);
}

/// Repeats that the broker is alive, if systemd watches it.
async fn watchdog() {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    loop {
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep((limit / 2).max(Duration::from_millis(100))).await;
    }
}

/// Each who waits has a connection.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}
