//! Accepts clients and starts a worker process for each.
//!
//! The supervisor reads one bounded message from a client, its hello, and hands the connection to a worker. It never
//! loads a driver library. What it holds for a client is a table entry and a process.

mod admit;
mod sessions;
mod shares;
mod workers;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use outboard_wire::handshake::{Refusal, RefusalCode, VERSION};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use sessions::Sessions;

/// What a supervisor needs to know.
pub struct Config {
    /// Where clients connect: `HOST:PORT`; port 0 takes any free one.
    pub listen: String,
    /// How to start a worker.
    pub worker: WorkerCommand,
    /// How long a client may take for its hello.
    pub hello_timeout: Duration,
    /// How long a worker may take to welcome its client.
    pub start_timeout: Duration,
    /// Clients that may be at their hello at once; more are refused.
    pub max_hellos: usize,
    /// Sessions at once; more are refused.
    pub max_sessions: usize,
    /// Bulk lanes that clients are advised to open.
    pub lanes: u32,
    /// How the workers log.
    pub log_format: crate::logs::Format,
    /// Called once clients can connect, with the address.
    pub on_ready: Option<Box<dyn FnOnce(SocketAddr)>>,
}

/// How to start a worker: a program that calls [`worker::run`](crate::worker::run).
#[derive(Debug, Clone)]
pub struct WorkerCommand {
    /// The program; normally the supervisor's own.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables added to the supervisor's own environment.
    pub env: Vec<(OsString, OsString)>,
}

/// Why a supervisor cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// What the system said.
        error: io::Error,
    },
    /// The runtime or the signal handlers cannot be set up.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

impl Config {
    /// The usual settings.
    pub fn new(listen: impl Into<String>, worker: WorkerCommand) -> Config {
        Config {
            listen: listen.into(),
            worker,
            hello_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(60),
            max_hellos: 256,
            max_sessions: 1024,
            lanes: usual_lanes(),
            log_format: crate::logs::Format::default(),
            on_ready: None,
        }
    }
}

/// One TCP stream over loopback carries 6 GB/s, four 24, eight 40: as many as there are processors to serve them.
fn usual_lanes() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(2, 8) as u32
}

impl WorkerCommand {
    /// Starts this program again, with these arguments.
    pub fn this_program<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> WorkerCommand {
        // Unlike the path of the program, this names the same file even after an update has replaced it.
        WorkerCommand {
            program: PathBuf::from("/proc/self/exe"),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
        }
    }
}

/// After a failure to accept for want of descriptors, the next attempt waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until SIGTERM or SIGINT, then stops all workers and returns. Must be called on the thread that lives as
/// long as the process: workers die with the thread that started them.
pub fn serve(config: Config) -> Result<(), ServeError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(config))
}

/// What the tasks of one supervisor share.
struct Supervisor {
    config: Config,
    sessions: Sessions,
    hellos: Arc<Semaphore>,
}

/// Every session takes a descriptor; the usual limit is lower than the number of sessions.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

async fn run(mut config: Config) -> Result<(), ServeError> {
    raise_descriptor_limit();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cannot_listen = |error| ServeError::Listen { address: config.listen.clone(), error };
    let listener = TcpListener::bind(&config.listen).await.map_err(cannot_listen)?;
    let address = listener.local_addr()?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), protocol = %VERSION, "serving");
    if let Some(on_ready) = config.on_ready.take() {
        on_ready(address);
    }
    let sessions = Sessions::new(config.max_sessions)?;
    let hellos = Arc::new(Semaphore::new(config.max_hellos));
    let supervisor = std::rc::Rc::new(Supervisor { config, sessions, hellos });
    let tasks = tokio::task::LocalSet::new();
    let reason = tasks
        .run_until(async {
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, peer)) => accept(&supervisor, stream, peer),
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept a client");
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                        }
                    },
                    _ = terminate.recv() => break "SIGTERM",
                    _ = interrupt.recv() => break "SIGINT",
                }
            }
        })
        .await;
    tracing::info!(reason, sessions = supervisor.sessions.len(), "stopping");
    drop(listener);
    tasks.run_until(supervisor.sessions.stop_all()).await;
    tracing::info!("stopped");
    Ok(())
}

/// Looks after one new connection, in a task of its own.
fn accept(supervisor: &std::rc::Rc<Supervisor>, stream: TcpStream, peer: SocketAddr) {
    let Ok(permit) = Arc::clone(&supervisor.hellos).try_acquire_owned() else {
        tracing::warn!(%peer, "refused: too many clients are connecting");
        let sentence = "the server has too many clients connecting at once; try again".to_owned();
        // Whether it fits into the empty socket buffer or not, nobody waits for it.
        let _ = stream.try_write(&Refusal { code: RefusalCode::Busy, sentence }.encode(VERSION));
        return;
    };
    let supervisor = std::rc::Rc::clone(supervisor);
    tokio::task::spawn_local(async move { admit::admit(&supervisor, stream, peer, permit).await });
}
