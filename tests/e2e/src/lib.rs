//! What the end-to-end tests share: the staged installation, the compiled programs, servers and
//! runs.
//!
//! `cargo xtask test` prepares all of it; by hand, `cargo xtask stage` and `cargo xtask programs`
//! do.

mod authority;
pub mod broker;
pub mod brokers;
mod compared;
mod cut;
mod damage;
pub mod files;
mod folder;
mod footprint;
mod forward;
mod found;
mod hostile;
mod lines;
mod meeting;
pub mod metrics;
pub mod mpi;
pub mod pool;
mod pool_broker;
mod program;
pub mod raw_client;
pub mod raw_https;
pub mod raw_peer;
mod recording;
mod replay;
mod server;
pub mod sshd;
mod terminal;
mod watched_files;

pub use authority::Authority;
pub use brokers::{Brokers, Tokens, copy_common};
pub use compared::compare_suite;
pub use cut::Wires;
pub use damage::Damage;
pub use folder::{Folder, SharedFile, inside_folders_of};
pub use footprint::{Footprint, Growth, History};
pub use forward::Forwarder;
pub use found::Found;
pub use hostile::{Asked, Hostile, Rewrite};
pub use lines::Lines;
pub use meeting::{Meeting, carry};
pub use pool_broker::{PlayedServer, PoolBroker};
pub use program::{Case, Outcome, Program, Running, known_to, suite};
pub use raw_client::RawClient;
pub use recording::Recording;
pub use replay::Replay;
pub use server::{Server, is_alive, list, processes_below, reaching_loopback};
pub use terminal::Terminal;
pub use watched_files::{Answers, Cache, WatchedFiles};

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// No single run of a program takes longer, on the slowest machine meant.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// What the tests run on, from `OUTBOARD_TEST_DRIVER`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The software device.
    Cpu,
    /// The GPU of this machine.
    Nvidia,
}

impl Driver {
    /// The one to test; the software device unless the environment says otherwise.
    pub fn chosen() -> Driver {
        match std::env::var("OUTBOARD_TEST_DRIVER").as_deref() {
            Ok("nvidia") => Driver::Nvidia,
            _ => Driver::Cpu,
        }
    }

    /// As `outboard serve --driver` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Driver::Cpu => "cpu",
            Driver::Nvidia => "nvidia",
        }
    }
}

/// The installation under test, laid out by `cargo xtask stage`.
pub fn dist() -> PathBuf {
    prepared("OUTBOARD_TEST_DIST", "dist", "cargo xtask stage")
}

/// The command, told of no server and no configuration but by its arguments, or by what a test
/// adds.
pub fn command() -> Command {
    let mut command = Command::new(dist().join("bin/outboard"));
    command
        .env_remove("OUTBOARD_SERVER")
        .env_remove("OUTBOARD_TRANSPORT")
        .env("OUTBOARD_CONFIG", "none");
    command.stdin(Stdio::null());
    command
}

/// Runs it.
pub fn outboard(args: &[&str]) -> Output {
    command().args(args).output().expect("outboard starts")
}

/// What a command says, without the breaks and the frame of its lines.
pub fn one_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let lines = text.lines().map(|line| line.trim_start_matches([' ', '│', '╰', '─', '▶', '├']));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// The folder of compiled programs, filled by `cargo xtask programs`.
pub fn programs() -> PathBuf {
    prepared("OUTBOARD_TEST_PROGRAMS", "programs", "cargo xtask programs")
}

fn prepared(variable: &str, name: &str, command: &str) -> PathBuf {
    let path =
        std::env::var_os(variable).map(PathBuf::from).unwrap_or_else(|| target_dir().join(name));
    assert!(
        path.is_dir(),
        "{} is not there; run `{command}` first, or `cargo xtask test` for everything",
        path.display()
    );
    path
}

/// Where cargo put this test: `…/target/<profile>/deps/<test>`.
fn target_dir() -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own path");
    // Cargo marks its folder with this file.
    let mut folders = own.ancestors().filter(|folder| folder.join("CACHEDIR.TAG").is_file());
    folders.next().map(Path::to_path_buf).unwrap_or_default()
}

/// Asks again and again until the answer is true; false when the time is up. For what happens in
/// other processes, where nothing can be waited on.
pub fn within(limit: Duration, mut check: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if check() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
