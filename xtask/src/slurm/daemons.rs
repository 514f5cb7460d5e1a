//! Processes that are started, killed and started again.

use super::folder;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A process that goes on until it is ended. What it says is a file of its own.
pub(super) struct Daemon {
    name: String,
    command: Command,
    child: Option<Child>,
}

impl Daemon {
    pub(super) fn start(name: &str, command: Command) -> Result<Daemon> {
        let mut daemon = Daemon { name: name.into(), command, child: None };
        // It is not to be taken for ready by what an earlier run said.
        let _ = fs::remove_file(daemon.log());
        daemon.start_again()?;
        Ok(daemon)
    }

    /// Where its output is.
    pub(super) fn log(&self) -> PathBuf {
        folder().join("logs").join(format!("{}.out", self.name))
    }

    pub(super) fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Starts it; it must not run.
    pub(super) fn start_again(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.with_context(|| format!("cannot write {}", self.log().display()))?;
        self.command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = self.command.spawn();
        self.child = Some(child.with_context(|| format!("cannot start {}", self.name))?);
        Ok(())
    }

    /// Ends it as nothing else does: SIGKILL.
    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

/// A port that nobody uses.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    Ok(listener.local_addr()?.port())
}
