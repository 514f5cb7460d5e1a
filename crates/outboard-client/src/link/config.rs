//! What can be set.

use std::time::Duration;

use super::security::Security;

/// Settings of a link.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a thread that waits spins before it blocks. Environment: `OUTBOARD_SPIN_US`, in microseconds.
    pub spin: Duration,
    /// Bytes of commands that may wait to be sent; posting blocks beyond.
    pub queue: usize,
    /// How long connecting may take, and then again the handshake.
    pub timeout: Duration,
    /// Threads that help to copy between the program's memory and memory that the worker shares. Environment: `OUTBOARD_COPY_THREADS`.
    pub copy_threads: usize,
    /// Which way the commands go. Environment: `OUTBOARD_TRANSPORT`, `tcp` or `shm`.
    pub transport: Choice,
    /// How the client knows its server, and shows who it is.
    pub security: Security,
}

/// Which way the commands go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Through shared memory if the server is on this machine and lets this client, else over TCP.
    #[default]
    Auto,
    /// Over TCP.
    Tcp,
    /// Through shared memory, or not at all.
    Shm,
}

/// Spinning beats blocking by about 5 µs a wake-up, where a second processor runs the other side meanwhile.
const SPIN: Duration = Duration::from_micros(50);

impl Default for Config {
    fn default() -> Config {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = if processors > 1 { SPIN } else { Duration::ZERO };
        let copy_threads = (processors / 2).saturating_sub(1).clamp(1, 5);
        Config {
            copy_threads,
            spin,
            queue: 8 << 20,
            timeout: Duration::from_secs(30),
            transport: Choice::Auto,
            security: Security::default(),
        }
    }
}

impl Config {
    /// The defaults, changed by the environment. Values that make no sense are ignored: this runs inside someone
    /// else's program, which must not fail for them.
    pub fn from_env() -> Config {
        let mut config = Config::default();
        let spin = std::env::var("OUTBOARD_SPIN_US").ok().and_then(|text| text.trim().parse().ok());
        if let Some(microseconds) = spin {
            // Beyond a second, spinning is a mistake.
            config.spin = Duration::from_micros(microseconds).min(Duration::from_secs(1));
        }
        let threads = std::env::var("OUTBOARD_COPY_THREADS").ok().and_then(|text| text.trim().parse().ok());
        config.copy_threads = threads.map_or(config.copy_threads, |threads: usize| threads.min(64));
        config.security = Security::from_env();
        config.transport = match std::env::var("OUTBOARD_TRANSPORT").as_deref().map(str::trim) {
            Ok("tcp") => Choice::Tcp,
            Ok("shm") => Choice::Shm,
            _ => Choice::Auto,
        };
        config
    }
}
