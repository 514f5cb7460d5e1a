//! Settings of a link.

use std::path::PathBuf;
use std::time::Duration;

use outboard_transport::SpinLimits;
use outboard_transport::rdma::{Allowed, Settings};

use super::security::Security;

/// Settings of a link.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a thread that waits spins at least before it blocks; with none, it never spins.
    pub spin: Duration,
    /// How long a wait spins at most, if earlier waits ended within that time. Environment:
    /// `OUTBOARD_SPIN_US`, in microseconds.
    pub most_spin: Duration,
    /// How long the threads of a lane spin.
    pub lane_spin: Duration,
    /// Bytes of commands that may wait to be sent; posting blocks beyond.
    pub queue: usize,
    /// How long connecting may take, and then again the handshake.
    pub timeout: Duration,
    /// Threads that help to copy between the program's memory and memory that the worker shares.
    /// Environment: `OUTBOARD_COPY_THREADS`.
    pub copy_threads: usize,
    /// Which way the commands go. Environment: `OUTBOARD_TRANSPORT`, the name of a [`Choice`].
    pub transport: Choice,
    /// The RDMA adapters. Environment: `OUTBOARD_RDMA_DEVICE`, names, and `OUTBOARD_RDMA_NETWORK`,
    /// networks, with commas between.
    pub rdma: Rdma,
    /// The memory that this virtual machine and its host share, or `off`; none: the first that
    /// there is. Environment: `OUTBOARD_IVSHMEM`.
    pub ivshmem: Option<PathBuf>,
    /// How the client recognises its server and authenticates itself.
    pub security: Security,
    /// How long to try to take a session up again whose connection was lost, if the server keeps it
    /// that long; zero: not at all. Environment: `OUTBOARD_RECONNECT`, in seconds.
    pub reconnect: Duration,
    /// A worker that sends nothing for this long while a thread waits has stopped; none if it does
    /// not say that it lives.
    pub silence: Option<Duration>,
    /// Whether to say on standard error what becomes of the connection. Environment:
    /// `OUTBOARD_LOG`, anything.
    pub talks: bool,
    /// What is said on standard error if the server is lost; a reason follows. Environment:
    /// `OUTBOARD_SAY_LOST`, which `outboard run` sets to `alone` if the program has one server, or
    /// else to anything.
    pub said_when_lost: Option<String>,
}

/// Which adapters the client may use, and how.
#[derive(Debug, Clone, Default)]
pub struct Rdma {
    /// Which.
    pub allowed: Allowed,
    /// How much may be under way.
    pub settings: Settings,
}

/// Which way the commands go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Through shared memory if the server is on this machine and lets this client; else through
    /// memory that this virtual machine shares with its host, or between RDMA adapters, if both
    /// have that; else as the address says.
    #[default]
    Auto,
    /// Over TCP.
    Tcp,
    /// Through shared memory, or not at all.
    Shm,
    /// Over vsock.
    Vsock,
    /// Between RDMA adapters, or not at all.
    Rdma,
    /// Through memory that this virtual machine and its host share, or not at all.
    Ivshmem,
}

impl Choice {
    /// The one that settings call so.
    pub(crate) fn named(name: &str) -> Option<Choice> {
        match name {
            "auto" => Some(Choice::Auto),
            "tcp" => Some(Choice::Tcp),
            "shm" => Some(Choice::Shm),
            "vsock" => Some(Choice::Vsock),
            "rdma" => Some(Choice::Rdma),
            "ivshmem" => Some(Choice::Ivshmem),
            _ => None,
        }
    }
}

/// As long as the server lets it.
const RECONNECT: Duration = Duration::from_secs(24 * 3600);

impl Default for Config {
    fn default() -> Config {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = SpinLimits::default();
        Config {
            copy_threads: (processors / 2).saturating_sub(1).clamp(1, 7),
            spin: spin.least,
            most_spin: spin.most,
            lane_spin: spin.lane(),
            queue: 8 << 20,
            timeout: Duration::from_secs(30),
            transport: Choice::Auto,
            rdma: Rdma::default(),
            ivshmem: None,
            security: Security::default(),
            reconnect: RECONNECT,
            silence: None,
            talks: false,
            said_when_lost: None,
        }
    }
}

impl Config {
    /// Has the link be taken up again for so many seconds.
    pub(crate) fn reconnect_for(&mut self, seconds: u64) {
        self.reconnect = Duration::from_secs(seconds).min(RECONNECT);
    }

    /// The defaults, changed by the environment. Values that make no sense are ignored: this runs
    /// inside someone else's program, which must not fail for them.
    pub fn from_env() -> Config {
        let mut config = Config::default();
        let spin = SpinLimits::from_env();
        (config.spin, config.most_spin, config.lane_spin) = (spin.least, spin.most, spin.lane());
        let threads =
            std::env::var("OUTBOARD_COPY_THREADS").ok().and_then(|text| text.trim().parse().ok());
        config.copy_threads = threads.map_or(config.copy_threads, |threads: usize| threads.min(64));
        config.security = Security::from_env();
        let reconnect =
            std::env::var("OUTBOARD_RECONNECT").ok().and_then(|text| text.trim().parse().ok());
        if let Some(seconds) = reconnect {
            config.reconnect_for(seconds);
        }
        config.talks = std::env::var_os("OUTBOARD_LOG").is_some();
        outboard_transport::tcp::keepalive_from_env();
        let transport = std::env::var("OUTBOARD_TRANSPORT").ok();
        config.transport =
            transport.and_then(|name| Choice::named(name.trim())).unwrap_or_default();
        config.rdma.allowed.devices = listed("OUTBOARD_RDMA_DEVICE");
        config.rdma.allowed.networks = listed("OUTBOARD_RDMA_NETWORK");
        let ivshmem = std::env::var_os("OUTBOARD_IVSHMEM").filter(|path| !path.is_empty());
        config.ivshmem = ivshmem.map(PathBuf::from);
        config
    }
}

/// What a variable lists, with commas between; as little as makes sense.
fn listed<T: std::str::FromStr>(variable: &str) -> Vec<T> {
    let text = std::env::var(variable).unwrap_or_default();
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.filter_map(|item| item.parse().ok()).collect()
}
