//! How the devices are shared.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use outboard_control::identity::Limits;
use outboard_supervisor::WorkerCommand;
use outboard_supervisor::sharing::{Config, Modes, Oversubscribe};

use crate::images::bytes;

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// The most memory of each device for a session, in bytes; K, M, G and T stand for powers of
    /// 1024. Its programs see a device of that size.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    session_memory: Option<u64>,
    /// Whether owners share a device: `shared` for all owners, `exclusive` for one at a time, or by
    /// the device's index: 0=exclusive,1=shared.
    #[arg(long, default_value = "shared", value_name = "MODE|INDEX=MODE,…")]
    sharing: Modes,
    /// Bytes of each device's memory for all sessions together. With --session-memory, the server
    /// admits as many sessions as have room.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,
    /// Bytes a second that a session may send, and as many that it may receive. Copies through
    /// memory shared with a client on this machine are not counted.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    session_bandwidth: Option<u64>,
    /// The share of each device's multiprocessors that a session may use, in percent.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    session_multiprocessors: Option<u8>,
    /// Lend the memory of idle sessions: when a session needs room, the server suspends an idle
    /// one, whose memory moves to the host until its next call.
    #[arg(long)]
    oversubscribe: bool,
    /// After how many seconds without a call a session is idle.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = crate::serve::seconds())]
    idle: u64,
    /// The most host memory for suspended sessions. Without it, all that is free.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    suspended_memory: Option<u64>,
    /// The most sessions of one owner at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    owner_sessions: Option<u32>,
    /// The most sessions at once.
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_sessions: u32,
    /// How many clients may wait until there is room for their session; `off` refuses them,
    /// unless a session is about to end.
    #[arg(long, default_value = "off", value_name = "N|off")]
    queue: Queue,
    /// How many seconds each of them may wait.
    #[arg(long, value_name = "SECONDS", value_parser = crate::serve::seconds())]
    queue_time: Option<u64>,
}

/// Workers beyond the sessions, which only answer questions: one for each session, some for
/// `nvidia-smi` and its like, and never more than these.
const FOR_QUESTIONS: usize = 256;
const FOR_LOOKING: usize = 16;

/// The length of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Queue(usize);

impl std::str::FromStr for Queue {
    type Err = String;

    fn from_str(text: &str) -> Result<Queue, String> {
        match text {
            "off" => Ok(Queue(0)),
            number => number
                .parse()
                .map(Queue)
                .map_err(|_| format!("`{text}` is neither a number nor `off`")),
        }
    }
}

impl Args {
    pub(crate) fn apply(&self, config: &mut outboard_supervisor::Config, driver: &Path) {
        let limits = Limits {
            memory: self.session_memory,
            sessions: self.owner_sessions,
            multiprocessors: self.session_multiprocessors,
            bandwidth: self.session_bandwidth,
        };
        config.sharing = Config {
            limits,
            modes: self.sharing.clone(),
            memory: self.memory,
            sessions: Some(self.max_sessions as usize),
            queue: self.queue.0,
            patience: self.queue_time.map(Duration::from_secs),
            oversubscribe: self.oversubscribe.then(|| Oversubscribe {
                idle: Duration::from_secs(self.idle),
                host_memory: self.suspended_memory,
            }),
            helper: Some(WorkerCommand::this_program([
                OsString::from("suspend-helper"),
                "--driver".into(),
                driver.into(),
            ])),
        };
        if self.oversubscribe {
            // The software device lets itself be suspended only then.
            config.worker.env.push(("OUTBOARD_CPU_CHECKPOINT".into(), "1".into()));
        }
        config.max_questions = (self.max_sessions as usize + FOR_LOOKING).min(FOR_QUESTIONS);
        config.max_sessions = self.max_sessions as usize + config.max_questions;
    }
}
