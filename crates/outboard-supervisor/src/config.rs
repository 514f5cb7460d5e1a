//! What a supervisor needs to know.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::command::WorkerCommand;
use super::local::{Access, Socket};
use super::{collectives, dial, metrics, pool, resume, sharing, standing, traces, vsock, warm};
use crate::auth;

/// What a supervisor needs to know.
pub struct Config {
    /// Where clients connect: `HOST:PORT`; port 0 takes any free one, and `none` leaves the Unix
    /// socket alone.
    pub listen: String,
    /// Whether clients on this machine find a Unix socket, over which they can share memory with
    /// their worker.
    pub socket: Socket,
    /// Where clients in virtual machines connect.
    pub guests: Vec<vsock::Place>,
    /// The users who may connect to the Unix sockets.
    pub access: Access,
    /// Whether there is a socket for administrators, who are the server's own user and root.
    pub admin: Socket,
    /// How clients authenticate themselves, and whether connections are encrypted.
    pub auth: auth::Config,
    /// How it belongs to a pool.
    pub pool: pool::Config,
    /// Where monitoring systems read how it goes.
    pub metrics: metrics::config::Config,
    /// Where traces of sessions go.
    pub traces: traces::Config,
    /// How to start a worker.
    pub worker: WorkerCommand,
    /// The driver that workers load, for people.
    pub driver: String,
    /// How long a client may take for its hello.
    pub hello_timeout: Duration,
    /// How long a worker may take to welcome its client.
    pub start_timeout: Duration,
    /// Clients that may be at their hello at once, over TCP and by the socket each; those that have
    /// been silent the longest make room for more.
    pub max_hellos: usize,
    /// Workers at once, for sessions and for clients that only send queries; more are refused.
    pub max_sessions: usize,
    /// Those among them for clients that only send queries.
    pub max_questions: usize,
    /// The most bulk lanes that a client opens.
    pub lanes: u32,
    /// Workers that wait for a client with the driver started.
    pub warm: warm::bounds::Bounds,
    /// How long one waits that the last clients did not need, before it ends.
    pub warm_for: Duration,
    /// Ordinals of the devices whose primary context those workers hold.
    pub warm_contexts: Vec<u32>,
    /// How long sessions outlive their connections.
    pub resume: resume::Config,
    /// How the server ends.
    pub standing: standing::Config,
    /// How workers are linked to those of other servers.
    pub peers: dial::Config,
    /// The RDMA adapters to which clients may move their sessions, if they may.
    pub rdma: Option<outboard_control::messages::Rdma>,
    /// Memory that virtual machines and this host share, to which their clients may move.
    pub regions: Vec<outboard_transport::ivshmem::Region>,
    /// Opens the files that the server shares, if it shares any.
    pub files: Option<Arc<outboard_files::Opener>>,
    /// The folder of the client library that clients are given, if they are given one.
    pub library: Option<PathBuf>,
    /// Whether system calls of workers are made that no list has, and noted.
    pub record_calls: bool,
    /// Whether workers make collectives.
    pub collectives: collectives::Config,
    /// How its devices are shared.
    pub sharing: sharing::Config,
    /// How the workers log.
    pub log_format: crate::logs::Format,
    /// Called once clients can connect, with the address.
    pub on_ready: Option<Box<dyn FnOnce(SocketAddr)>>,
}

impl Config {
    /// The usual settings.
    pub fn new(listen: impl Into<String>, worker: WorkerCommand) -> Config {
        Config {
            listen: listen.into(),
            socket: Socket::Off,
            guests: Vec::new(),
            access: Access::Owner,
            admin: Socket::Off,
            auth: auth::Config::default(),
            pool: pool::Config::default(),
            metrics: metrics::config::Config::default(),
            traces: traces::Config::default(),
            worker,
            driver: String::new(),
            hello_timeout: Duration::from_secs(5),
            start_timeout: Duration::from_secs(60),
            max_hellos: 256,
            max_sessions: 1024,
            max_questions: 256,
            lanes: usual_lanes(),
            warm: warm::bounds::Bounds::fixed(0),
            warm_for: Duration::from_secs(30),
            warm_contexts: vec![0],
            resume: resume::Config::default(),
            standing: standing::Config::default(),
            peers: dial::Config::default(),
            rdma: None,
            regions: Vec::new(),
            files: None,
            library: None,
            record_calls: false,
            collectives: collectives::Config::default(),
            sharing: sharing::Config::default(),
            log_format: crate::logs::Format::default(),
            on_ready: None,
        }
    }
}

/// One TCP stream over loopback carries 6 GB/s, four 24, eight 40: as many as there are processors
/// to serve them. Over a long distance a stream carries its window once per round trip, whatever
/// the processors, so a few lanes are offered anyway. Clients find out how many of them are worth
/// it.
fn usual_lanes() -> u32 {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (processors / 2).clamp(8, outboard_wire::limits::MAX_LANES) as u32
}
