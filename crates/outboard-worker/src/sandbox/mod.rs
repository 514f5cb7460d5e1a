//! Confinement of a worker on its machine.
//!
//! A worker runs a driver library on a client's behalf: images that it compiles, kernels that it
//! launches, structures that it parses are the client's. If one of these compromises the process,
//! it must find nothing of value. Two steps, because threads that exist already keep the file
//! rights they have:
//!
//! 1. [`Sandbox::before_the_driver`], while the process has one thread: a user of its own if the
//!    server has one for it, none of root's capabilities, no new privileges, no core files, and of
//!    the file system only what a driver needs, none of the network (Landlock).
//! 2. [`Sandbox::before_the_client`], once the driver is up and before a byte of the client is
//!    read: of system calls, only those remain that are known to do no harm, in every thread
//!    (seccomp). The supervisor is told which others were tried.
//!
//! If the system lacks a layer, the worker logs that and continues, except in [`Mode::Strict`].

mod accounts;
mod calls;
mod files;
mod user;

pub use calls::Calls;
pub use user::User;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use rustix::process::{Resource, Rlimit, setrlimit};

/// How much a worker insists on its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// No sandbox.
    Off,
    /// As much as the system has.
    On,
    /// All of it, or no worker.
    Strict,
}

impl Mode {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::On => "on",
            Mode::Strict => "strict",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let named =
            [Mode::Off, Mode::On, Mode::Strict].into_iter().find(|mode| mode.name() == text);
        named.ok_or_else(|| format!("`{text}` is neither on, strict nor off"))
    }
}

/// A worker cannot be confined as it should be.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox for workers is not complete: {layer}: {problem}{}", self.way_out())]
pub struct Incomplete {
    layer: Layer,
    problem: String,
}

impl Incomplete {
    fn way_out(&self) -> &'static str {
        if self.layer == Layer::User {
            ""
        } else {
            "; with --sandbox on, the server goes on without that layer"
        }
    }
}

/// A part of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    User,
    Privileges,
    Files,
    Network,
    Calls,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::User => "the workers' own user",
            Layer::Privileges => "privileges and limits",
            Layer::Files => "files and network (Landlock)",
            Layer::Network => "the network, for sockets of collectives (Landlock)",
            Layer::Calls => "system calls (seccomp)",
        })
    }
}

/// The sandbox of this process.
#[derive(Clone, Debug)]
pub struct Sandbox {
    mode: Mode,
    /// Which system calls are refused.
    calls: Calls,
    /// Files and folders that are read, beyond what every driver reads.
    reads: Vec<PathBuf>,
    /// Folders that are written to.
    writes: Vec<PathBuf>,
    /// Whether the process makes collectives: it is handed sockets of the network, and makes Unix
    /// sockets for datagrams.
    collectives: bool,
    /// The user of the process, if another one than its parent's.
    user: Option<User>,
}

impl Sandbox {
    /// A sandbox whose process reads `reads` (files, or folders with all they hold), and keeps
    /// files in `writes`.
    pub fn new(mode: Mode, reads: Vec<PathBuf>, writes: Vec<PathBuf>) -> Sandbox {
        let calls = Calls::default();
        Sandbox { mode, calls, reads, writes, collectives: false, user: None }
    }

    /// The process makes collectives: it needs what NCCL needs beside a driver.
    #[must_use]
    pub fn making_collectives(mut self) -> Sandbox {
        self.reads.extend(files::NCCL_READ.iter().map(PathBuf::from));
        Sandbox { collectives: true, ..self.using_adapters() }
    }

    /// The process may use RDMA adapters.
    #[must_use]
    pub fn using_adapters(mut self) -> Sandbox {
        self.reads.extend(files::ADAPTERS_READ.iter().map(PathBuf::from));
        self.writes.extend(files::ADAPTERS_WRITE.iter().map(PathBuf::from));
        self
    }

    /// The process becomes this user's, whatever the mode.
    #[must_use]
    pub fn of_user(self, user: Option<User>) -> Sandbox {
        Sandbox { user, ..self }
    }

    /// The system calls that the process may make.
    #[must_use]
    pub fn with_calls(self, calls: Calls) -> Sandbox {
        Sandbox { calls, ..self }
    }

    /// No sandbox.
    pub fn none() -> Sandbox {
        Sandbox::new(Mode::Off, Vec::new(), Vec::new())
    }

    /// The first step, for the main thread while there is no other.
    pub fn before_the_driver(&self) -> Result<(), Incomplete> {
        if let Some(user) = &self.user {
            // Somebody has asked for it by name, so there is no going on without.
            let incomplete =
                |error: io::Error| Incomplete { layer: Layer::User, problem: error.to_string() };
            user.take_on().map_err(incomplete)?;
        }
        if self.mode == Mode::Off {
            return Ok(());
        }
        self.take(Layer::Privileges, privileges().map_err(|error| error.to_string()))?;
        self.take(Layer::Files, files::confine(&self.reads, &self.writes))?;
        if !self.collectives {
            // It cannot have a socket.
            return Ok(());
        }
        self.take(Layer::Network, files::confines_sockets())
    }

    /// The second step, for all threads. `tell` gets the listener of refused calls, if the kernel
    /// has one to give.
    pub fn before_the_client(
        &self,
        tell: Option<&dyn Fn(OwnedFd) -> io::Result<()>>,
    ) -> Result<(), Incomplete> {
        if self.mode == Mode::Off {
            return Ok(());
        }
        self.take(Layer::Calls, calls::refuse(self.calls, self.collectives, tell))
    }

    fn take(&self, layer: Layer, outcome: Result<(), String>) -> Result<(), Incomplete> {
        match outcome {
            Ok(()) => Ok(()),
            Err(problem) if self.mode == Mode::Strict => Err(Incomplete { layer, problem }),
            Err(problem) => {
                tracing::warn!(%layer, problem, "the system lacks a layer of the worker's sandbox");
                Ok(())
            }
        }
    }
}

/// This process has no more rights than its user's files give it. No program that this process
/// might start gets more rights than it has, and its memory is never written to a file.
fn privileges() -> io::Result<()> {
    user::drop_capabilities()?;
    rustix::thread::set_no_new_privs(true)?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}
