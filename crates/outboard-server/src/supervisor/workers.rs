//! One worker process, from the supervisor's side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use super::WorkerCommand;
use crate::cgroup::Member;
use crate::control::{self, ToSupervisor, ToWorker};
use crate::logs;

/// How to start a worker.
pub(super) struct Order<'a> {
    pub(super) command: &'a WorkerCommand,
    pub(super) log_format: logs::Format,
}

/// A worker process and the socket to it.
pub(super) struct Worker {
    child: Child,
    id: u32,
    control: AsyncFd<OwnedFd>,
    /// Dropped last, when the process has been told to end.
    _group: Option<Member>,
}

/// Makes the process that follows map memory from a third of its address space upwards, where its client maps from the top downwards. A driver
/// takes device addresses from its own process's address space, and the client's program must be able to tell them from its own.
fn map_from_below() -> io::Result<()> {
    // SAFETY: asks for and sets flags of this process; 0xffffffff only asks.
    unsafe {
        let now = libc::personality(0xffff_ffff);
        libc::personality(now as libc::c_ulong | libc::ADDR_COMPAT_LAYOUT as libc::c_ulong);
    }
    // Where it is not allowed, addresses are merely unlikely to be the same.
    Ok(())
}

impl Worker {
    /// Starts the process, in a process group of its own.
    pub(super) fn spawn(order: &Order<'_>) -> io::Result<Worker> {
        let (ours, theirs) = control::pair()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let mut command = Command::new(&order.command.program);
        command
            .args(&order.command.args)
            .env(logs::FORMAT_VARIABLE, order.log_format.name())
            .envs(order.command.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        // SAFETY: between fork and exec only a system call is made.
        let child = unsafe { command.pre_exec(map_from_below) }.spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("the worker has ended already"))?;
        // SAFETY: `ours` is an open descriptor that the AsyncFd owns; nothing takes it out or changes what it refers to.
        let control = unsafe { AsyncFd::register(ours) }.map_err(io::Error::from)?;
        let group =
            order.command.cgroup.as_ref().map(|cgroup| cgroup.place(id)).transpose().map_err(io::Error::other)?;
        Ok(Worker { child, id, control, _group: group })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Sends a message, and perhaps a descriptor with it.
    pub(super) fn send(&self, message: &ToWorker, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        control::send(self.control.get_ref().as_fd(), message, descriptor)
    }

    /// The next message, and the descriptor with it; `None` once the worker has closed its end.
    pub(super) async fn receive(&self) -> io::Result<Option<(ToSupervisor, Option<OwnedFd>)>> {
        loop {
            let mut ready = self.control.readable().await?;
            match ready.try_io(|control| control::receive::<ToSupervisor>(control.get_ref().as_fd())) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Waits for the process to end.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills the process and what it may have started.
    pub(super) fn kill(&self) {
        if let Some(group) = Pid::from_raw(self.id.cast_signed()) {
            // It may be gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
