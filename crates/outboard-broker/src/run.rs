//! The broker as a process.

use crate::desk::Rules;
use crate::front::Front;
use crate::http::{Listener, Security};
use crate::lead::Lead;
use crate::quotas::{self, QuotasError};
use crate::store::{Cluster, FileStore, StoreError};
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
    /// The folder with the keys, the certificate and the tokens; and with the file of leases,
    /// unless these are in an etcd.
    pub state: PathBuf,
    /// The etcd in which several brokers keep leases, if so.
    pub shared: Option<Shared>,
    /// By what callers know the broker, and it knows them.
    pub security: Security,
    /// How it decides.
    pub rules: Rules,
    /// What owners and groups may have; read again on SIGHUP.
    pub quotas: Option<PathBuf>,
    /// Whether everybody may see what names nobody.
    pub open_view: bool,
}

/// What several brokers of a pool have in common.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Where they keep leases.
    pub cluster: Cluster,
    /// Where people reach this broker, `https://HOST:PORT`; without it where it listens.
    pub url: Option<String>,
}

impl Config {
    /// The rules, with what the file of quotas says by now.
    pub(crate) fn rules(&self) -> Result<Rules, QuotasError> {
        let mut rules = self.rules.clone();
        if let Some(path) = &self.quotas {
            quotas::read(path, &mut rules)?;
        }
        Ok(rules)
    }
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
    /// Quotas are not as they should be.
    #[error(transparent)]
    Quotas(#[from] QuotasError),
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
    let mut hangup = signal(SignalKind::hangup())?;
    let state = &config.state;
    // The file comes first: of two brokers, the second changes nothing.
    let file = match &config.shared {
        Some(_) => None,
        None => Some(FileStore::open(state)?),
    };
    let listener = Listener::open(&config.listen, &config.security, state).await?;
    let known = Known::open(state);
    if let Some(problem) = known.problem() {
        return Err(AuthError::file("the tokens", tokens::file(state), problem).into());
    }
    if !known.any() && config.security.client_ca.is_none() {
        tracing::warn!(
            "there are no tokens: `outboard token create --broker --state {} --role \
             server|client|admin --owner NAME` makes them, also while the broker runs",
            state.display()
        );
    }
    let (address, fingerprint) = (listener.address, listener.fingerprint);
    let front = Rc::new(Front::new(known));
    let lead = Lead::new(config, Rc::clone(&front), address, fingerprint)?;
    let leading = async {
        match (file, &config.shared) {
            (None, Some(shared)) => lead.in_turns(shared).await,
            (Some(file), _) => lead.alone(file).await,
            (None, None) => Ok(()),
        }
    };
    let mut outcome = Ok(());
    let reason = tokio::select! {
        () = listener.serve(Rc::clone(&front)) => "the address is closed",
        led = leading => {
            outcome = led;
            "changes cannot be kept"
        }
        () = watchdog() => "the watchdog has ended",
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
        () = async { while hangup.recv().await.is_some() { lead.reload(); } } => "SIGHUP",
    };
    tracing::info!(reason, "stopping");
    tell(&[NotifyState::Stopping]);
    front.finish().await;
    outcome
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd cannot be told");
    }
}

/// Says that the broker can be asked, and what it does.
pub(crate) fn tell_ready(does: &str, address: SocketAddr) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("{does} at {address}"))]);
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
