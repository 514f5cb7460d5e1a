//! Accepts clients and starts a worker process for each.
//!
//! The supervisor reads one bounded message from a client, its hello, and hands the connection to a worker. It never
//! loads a driver library. What it holds for a client is a table entry and a process.

mod admin;
mod admit;
mod adopt;
mod drain;
mod hellos;
mod local;
pub mod metrics;
mod notify;
mod over;
mod records;
pub mod resume;
mod secure;
mod sessions;
mod shares;
pub mod sharing;
pub mod standing;
mod tally;
mod totals;
pub mod traces;
mod upgrade;
mod warm;
mod workers;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use outboard_transport::tcp;
use outboard_wire::Code;
use outboard_wire::handshake::{Local, Refusal, RefusalCode, VERSION};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::auth::{self, AuthError, Gate, Way};
use crate::cgroup::Cgroup;
use drain::{Asked, Drain, Signals};
use hellos::{Hellos, Origin, Seat};
use local::Door;
pub use local::{Access, Socket, usual as usual_socket, usual_folders};
use records::Records;
use sessions::{Heritage, Sessions};
use upgrade::{Coming, Inherited};
use warm::Warm;

use crate::board::Board;
use crate::control::tags;

/// What a supervisor needs to know.
pub struct Config {
    /// Where clients connect: `HOST:PORT`; port 0 takes any free one.
    pub listen: String,
    /// Whether clients on this machine find a Unix socket, over which they can share memory with their worker.
    pub socket: Socket,
    /// Who may connect to it.
    pub access: Access,
    /// Whether administrators, who are the server's own user and root, find a socket to ask and order.
    pub admin: Socket,
    /// How clients show who they are, and whether connections are encrypted.
    pub auth: auth::Config,
    /// Where monitoring systems read how it goes.
    pub metrics: metrics::Config,
    /// Where traces of sessions go.
    pub traces: traces::Config,
    /// How to start a worker.
    pub worker: WorkerCommand,
    /// How long a client may take for its hello.
    pub hello_timeout: Duration,
    /// How long a worker may take to welcome its client.
    pub start_timeout: Duration,
    /// Clients that may be at their hello at once, over TCP and by the socket each; those that have been silent the longest make room for more.
    pub max_hellos: usize,
    /// Sessions at once; more are refused.
    pub max_sessions: usize,
    /// Bulk lanes that clients are advised to open.
    pub lanes: u32,
    /// Workers that wait for a client with the driver started.
    pub warm: usize,
    /// Ordinals of the devices whose primary context those workers hold.
    pub warm_contexts: Vec<u32>,
    /// How long sessions outlive their connections.
    pub resume: resume::Config,
    /// How the server ends.
    pub standing: standing::Config,
    /// How its devices are shared.
    pub sharing: sharing::Config,
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
    /// Where it is put as soon as it runs.
    pub cgroup: Option<Cgroup>,
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
    /// Clients cannot be told apart, or not reached in secret.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// Metrics cannot be told.
    #[error(transparent)]
    Metrics(#[from] metrics::MetricsError),
    /// The folder that was named for notes on sessions cannot be used.
    #[error("cannot note sessions in {folder:?}: {error}; `outboard serve --records` names another folder, or none")]
    Records {
        /// The folder.
        folder: standing::Folder,
        /// What the system said.
        error: io::Error,
    },
    /// The runtime or the signal handlers cannot be set up.
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

impl ServeError {
    /// Its error code, with a page for people.
    pub fn code(&self) -> Code {
        match self {
            ServeError::Listen { .. } => Code::CannotListen,
            ServeError::Auth(error) => error.code(),
            ServeError::Metrics(error) => error.code(),
            ServeError::Start(_) | ServeError::Records { .. } => Code::ServerStart,
        }
    }
}

impl Config {
    /// The usual settings.
    pub fn new(listen: impl Into<String>, worker: WorkerCommand) -> Config {
        Config {
            listen: listen.into(),
            socket: Socket::Off,
            access: Access::Owner,
            admin: Socket::Off,
            auth: auth::Config::default(),
            metrics: metrics::Config::default(),
            traces: traces::Config::default(),
            worker,
            hello_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(60),
            max_hellos: 256,
            max_sessions: 1024,
            lanes: usual_lanes(),
            warm: 0,
            warm_contexts: vec![0],
            resume: resume::Config::default(),
            standing: standing::Config::default(),
            sharing: sharing::Config::default(),
            log_format: crate::logs::Format::default(),
            on_ready: None,
        }
    }
}

/// One TCP stream over loopback carries 6 GB/s, four 24, eight 40: as many as there are processors to serve them. Clients find out how many of them
/// are worth it.
fn usual_lanes() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(2, outboard_wire::limits::MAX_LANES) as u32
}

impl WorkerCommand {
    /// Starts this program again, with these arguments.
    pub fn this_program<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> WorkerCommand {
        // Unlike the path of the program, this names the same file even after an update has replaced it.
        WorkerCommand {
            program: PathBuf::from("/proc/self/exe"),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cgroup: None,
        }
    }
}

/// After a failure to accept for want of descriptors, the next attempt waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until SIGTERM or SIGINT, lets sessions finish for [a while](standing::Config::drain), then stops all workers and returns. Must be called on the thread that lives as
/// long as the process: workers die with the thread that started them.
pub fn serve(config: Config) -> Result<(), ServeError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(config))
}

/// What the tasks of one supervisor share.
struct Supervisor {
    config: Config,
    /// What clients are told of the socket for those on this machine.
    local: Option<Local>,
    sessions: Sessions,
    warm: std::rc::Rc<Warm>,
    hellos: Hellos,
    drain: Drain,
    started: std::time::Instant,
    /// Who is let in, and who waits for that.
    queue: sharing::Queue,
    gate: Gate,
    tally: tally::Tally,
    coming: Coming,
}

impl Supervisor {
    /// Why a client that comes now would not get a session, as far as that does not depend on the client.
    fn why_not_ready(&self) -> Option<&'static str> {
        if self.drain.has_begun() {
            return Some("the server is stopping");
        }
        (self.sessions.len() >= self.config.max_sessions).then_some("the server is at its limit of sessions")
    }
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
    let keepalive = config.resume.keepalive.as_secs().to_string();
    config.worker.env.push((tcp::KEEPALIVE_VARIABLE.into(), keepalive.into()));
    let mut signals = Signals::new()?;
    upgrade::take_signals();
    let inherited = Inherited::take();
    let upgrades = inherited.upgrades;
    let doors = Doors::open(&config, inherited).await?;
    let (address, door) = (doors.listener.local_addr()?, &doors.door);
    let gate = Gate::open(&config.auth, address)?;
    let local = door.as_ref().and_then(Door::told);
    let desk = admin::Desk::open(&config, address.port())?;
    let metrics = metrics::Listener::open(&config.metrics).await?;
    let tasks = tokio::task::LocalSet::new();
    // What is lent is not promised.
    let queue = sharing::Queue::new(&config.sharing, config.sharing.oversubscribe.is_none());
    let traces = std::rc::Rc::new(traces::Traces::new(&config.traces));
    let (sessions, late) = tasks.run_until(sessions(&config, address, &queue, &traces)).await?;
    if upgrades > 0 {
        upgrade::reap();
    }
    let socket = local.as_ref().map_or("none", |local| &local.path);
    tracing::info!(%address, socket, sessions = sessions.len(), upgrades, version = env!("CARGO_PKG_VERSION"), protocol = %VERSION, "serving");
    if let Some(on_ready) = config.on_ready.take() {
        on_ready(address);
    }
    let hellos = Hellos::new(config.max_hellos);
    let warm = std::rc::Rc::new(Warm::new(config.warm, config.warm_contexts.clone()));
    let (drain, coming, started) = (Drain::default(), Coming::default(), std::time::Instant::now());
    let tally = tally::Tally::default();
    let supervisor = std::rc::Rc::new(Supervisor {
        config,
        local,
        sessions,
        warm,
        hellos,
        drain,
        started,
        queue,
        gate,
        tally,
        coming,
    });
    if late {
        tasks.spawn_local(adopt::later(std::rc::Rc::clone(&supervisor)));
    }
    let (warm, config) = (std::rc::Rc::clone(&supervisor.warm), &supervisor.config);
    tasks.spawn_local(warm.keep(config.worker.clone(), config.log_format));
    if let Some(desk) = desk {
        tasks.spawn_local(desk.serve(std::rc::Rc::clone(&supervisor)));
    }
    tasks.spawn_local(revoke(std::rc::Rc::clone(&supervisor)));
    tasks.spawn_local(std::rc::Rc::clone(&traces).run());
    if let Some(metrics) = metrics {
        tasks.spawn_local(metrics.serve(std::rc::Rc::clone(&supervisor)));
    }
    tasks.spawn_local(notify::watchdog());
    notify::ready();
    let reason = loop {
        match tasks.run_until(doors.accept_while(&supervisor, signals.next())).await {
            Asked::Stop(signal) => break signal,
            Asked::Upgrade => {
                let refused = tasks.run_until(doors.upgrade(&supervisor, upgrades + 1)).await;
                tracing::error!(reason = refused, "the server is not upgraded; it goes on as it is");
                notify::ready();
            }
        }
    };
    tracing::info!(reason, sessions = supervisor.sessions.len(), "stopping");
    notify::stopping(supervisor.sessions.len());
    supervisor.drain.begin();
    let drained = drain::wait(&supervisor.sessions, config.standing.drain, &mut signals);
    // Who comes now is told that the server stops, and sessions may still open lanes.
    let (sessions, warm) = (&supervisor.sessions, &supervisor.warm);
    tasks.run_until(async { tokio::join!(doors.accept_while(&supervisor, drained), warm.stop()) }).await;
    drop(doors);
    tasks.run_until(sessions.stop_all()).await;
    tasks.run_until(traces.finish()).await;
    tracing::info!("stopped");
    Ok(())
}

/// How often the tokens are looked at for what was revoked.
const REVOKE_EVERY: Duration = Duration::from_millis(500);

/// Ends the sessions of tokens that are revoked. Never ends.
async fn revoke(supervisor: std::rc::Rc<Supervisor>) {
    loop {
        tokio::time::sleep(REVOKE_EVERY).await;
        if let Some(is_over) = supervisor.gate.refresh() {
            let ended = supervisor.sessions.end_those(is_over);
            tracing::info!(ended, "the tokens have changed");
        }
    }
}

/// The table of sessions, with those that an earlier server has left; and whether there are more whose workers have not answered yet.
async fn sessions(
    config: &Config,
    address: SocketAddr,
    queue: &sharing::Queue,
    traces: &std::rc::Rc<traces::Traces>,
) -> Result<(Sessions, bool), ServeError> {
    let standing = &config.standing;
    let records = Records::open(&standing.records, address)
        .map_err(|error| ServeError::Records { folder: standing.records.clone(), error })?
        .map(std::rc::Rc::new);
    let (mut orphans, mut late) = (Vec::new(), 0);
    if let Some(records) = &records {
        records.sweep();
        (orphans, late) = adopt::collect(records, |_| false).await;
    }
    let layout = Board::layout(config.max_sessions);
    let same = orphans.iter_mut().filter(|orphan| orphan.record.board == layout);
    let board = same.filter_map(|orphan| orphan.take_kept(tags::BOARD)).next();
    let sessions = {
        let lending = sharing::Lending::new(&config.sharing);
        Sessions::new(
            config.max_sessions,
            Heritage { records, outlive: standing.outlive, board },
            std::rc::Rc::clone(traces),
            lending,
        )?
    };
    let workers: Vec<u32> = orphans.iter().map(|orphan| orphan.worker.id()).collect();
    sessions.adopt_all(orphans, queue);
    if late == 0 {
        sessions.tidy(&workers);
    }
    Ok((sessions, late > 0))
}

/// Where clients come in.
struct Doors {
    listener: TcpListener,
    door: Option<Door>,
}

impl Doors {
    /// Opens them, or goes on with those that are open already.
    async fn open(config: &Config, inherited: Inherited) -> Result<Doors, ServeError> {
        let cannot_listen = |error| ServeError::Listen { address: config.listen.clone(), error };
        let listener = match inherited.tcp {
            Some(listener) => {
                listener.set_nonblocking(true)?;
                TcpListener::from_std(listener)?
            }
            None => TcpListener::bind(&config.listen).await.map_err(cannot_listen)?,
        };
        let port = listener.local_addr()?.port();
        let door = match inherited.unix {
            Some(socket) => Door::go_on(socket, config.access)?,
            None => Door::open(&config.socket, config.access, port).map_err(|error| ServeError::Listen {
                address: if let Socket::At(path) = &config.socket { path.display().to_string() } else { String::new() },
                error,
            })?,
        };
        Ok(Doors { listener, door })
    }

    /// Has this process become the program that now lies where its own lay; returns only if that cannot be, with the reason.
    async fn upgrade(&self, supervisor: &std::rc::Rc<Supervisor>, upgrades: u64) -> String {
        let Some(program) = &supervisor.config.standing.program else {
            return "it does not know where its program lies".to_owned();
        };
        tracing::info!(program = %program.path.display(), "an upgrade is asked for");
        if supervisor.sessions.records().is_none() && supervisor.sessions.len() > 0 {
            return "sessions would be lost, as they are not noted (--records none)".to_owned();
        }
        if let Err(reason) = self.accept_while(supervisor, upgrade::check(program)).await {
            return reason;
        }
        notify::reloading();
        supervisor.drain.pause(true);
        // Who connects from now on waits until the new program accepts.
        supervisor.coming.settle().await;
        supervisor.warm.stop().await;
        let _settled = supervisor.sessions.hold_lending().await;
        let sockets: Vec<_> = [self.listener.as_fd()].into_iter().chain(self.door.as_ref().map(Door::as_fd)).collect();
        let error = upgrade::become_program(program, upgrades, &sockets);
        supervisor.drain.pause(false);
        supervisor.warm.go_on();
        format!("{} cannot be started: {error}", program.path.display())
    }

    /// Looks after clients that come until something else has happened.
    async fn accept_while<T>(&self, supervisor: &std::rc::Rc<Supervisor>, until: impl Future<Output = T>) -> T {
        let mut until = std::pin::pin!(until);
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => accept(supervisor, secure::Unknown(stream), Peer::Remote(peer)),
                    Err(error) => cannot_accept(&error).await,
                },
                accepted = knock(self.door.as_ref()) => match accepted {
                    Ok((stream, peer)) => accept(supervisor, stream, peer),
                    Err(error) => cannot_accept(&error).await,
                },
                outcome = &mut until => break outcome,
            }
        }
    }
}

/// Waits until something is so. Whoever changes it tells all who wait.
async fn until(changed: &Notify, is_so: impl Fn() -> bool) {
    loop {
        let changed = changed.notified();
        if is_so() {
            break;
        }
        changed.await;
    }
}

async fn cannot_accept(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a client");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// The next client at the socket, if there is one.
async fn knock(door: Option<&Door>) -> io::Result<(UnixStream, Peer)> {
    let Some(door) = door else { return std::future::pending().await };
    let stream = door.accept().await?;
    let user = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
    let peer = Peer::Local { user, admitted: door.admits(&stream) };
    Ok((stream, peer))
}

/// Where a client is.
#[derive(Debug, Clone, Copy)]
enum Peer {
    Remote(SocketAddr),
    /// On this machine, and whether its user may be here.
    Local {
        user: u32,
        admitted: bool,
    },
}

impl Peer {
    fn origin(self) -> Origin {
        match self {
            Peer::Remote(address) => Origin::Machine(address.ip().to_canonical()),
            Peer::Local { user, .. } => Origin::User(user),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Remote(address) => address.fmt(f),
            Peer::Local { user, .. } => write!(f, "user {user} of this machine"),
        }
    }
}

/// A client's connection, of whatever kind.
trait Connection: AsyncRead + AsyncWrite + AsFd + Unpin + 'static {
    /// What the client has shown by coming so.
    fn way(&self, peer: Peer) -> Way;

    /// Has what is flushed next be the last of this side, without closing what is below.
    fn finish(&mut self) {}
}

impl Connection for TcpStream {
    fn way(&self, _: Peer) -> Way {
        Way::Plain
    }
}

impl Connection for UnixStream {
    fn way(&self, peer: Peer) -> Way {
        match peer {
            Peer::Local { user, .. } => Way::Local { user },
            Peer::Remote(_) => Way::Plain,
        }
    }
}

/// A client that has just connected.
trait Newcomer: 'static {
    /// Writes what fits.
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Finds out what it wants, and does it. `seat` is held while the client is at its hello.
    async fn admit(self, supervisor: &Supervisor, peer: Peer, seat: Seat);
}

impl Newcomer for UnixStream {
    fn write_now(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write(bytes)
    }

    async fn admit(self, supervisor: &Supervisor, peer: Peer, seat: Seat) {
        let deadline = Instant::now() + supervisor.config.hello_timeout;
        admit::admit(supervisor, self, peer, seat, deadline).await;
    }
}

/// What a client is told for which there is no room.
fn too_many() -> Refusal {
    let sentence = "the server has too many clients connecting at once; try again".to_owned();
    Refusal { code: RefusalCode::Busy, sentence }
}

/// Looks after one new connection, in a task of its own.
fn accept(supervisor: &std::rc::Rc<Supervisor>, newcomer: impl Newcomer, peer: Peer) {
    let Some(seat) = supervisor.hellos.enter(peer.origin()) else {
        let refusal = too_many();
        tracing::warn!(%peer, code = %refusal.error(), "refused: too many clients are connecting");
        // Whether it fits into the empty socket buffer or not, nobody waits for it.
        let _ = newcomer.write_now(&refusal.encode(VERSION));
        return;
    };
    let supervisor = std::rc::Rc::clone(supervisor);
    tokio::task::spawn_local(async move {
        let _coming = supervisor.coming.enter();
        newcomer.admit(&supervisor, peer, seat).await;
    });
}
