//! How a worker is started.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cgroup::Cgroup;

/// How to start a worker: a program that calls `outboard_worker::run`.
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

impl WorkerCommand {
    /// Starts this program again, with these arguments.
    pub fn this_program<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> WorkerCommand {
        // Unlike the path of the program, this names the same file even after an update has
        // replaced it.
        WorkerCommand {
            program: PathBuf::from("/proc/self/exe"),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cgroup: None,
        }
    }
}
