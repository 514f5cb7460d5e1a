//! One worker process, from the supervisor's side.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open,
    pidfd_send_signal, setsid, waitid,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use crate::cgroup::Member;
use crate::closing::{self, Foreign};
use crate::command::WorkerCommand;
use crate::logs;
use crate::queues;
use crate::workers_log;
use outboard_control::messages::{self, ToSupervisor, ToWorker};

/// A worker may be behind with its messages for so long, ...
const DELIVERY: Duration = Duration::from_secs(10);
/// ... and is tried again after this.
const DELIVERY_PAUSE: Duration = Duration::from_millis(2);

/// Variables that mean the supervisor alone. The last one is perf's: the compiler of the software
/// device would write a file, which a worker's sandbox refuses.
const OWN_VARIABLES: [&str; 5] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "PERF_BUILDID_DIR"];

/// How to start a worker.
pub(super) struct Order<'a> {
    pub(super) command: &'a WorkerCommand,
    pub(super) log_format: logs::Format,
    /// Hardware queues of its devices, unless the supervisor's own environment says how many.
    pub(super) queues: u32,
}

/// A worker process and the socket to it.
pub(super) struct Worker {
    process: Handle,
    id: u32,
    control: AsyncFd<OwnedFd>,
    /// This process's end of the pipe for its log, which the worker keeps for the next one.
    log: Option<OwnedFd>,
    /// Dropped last, when the process has been told to end.
    _group: Option<Member>,
}

enum Handle {
    /// This supervisor has started it.
    Child(Child),
    /// An earlier one has; readable once it has ended.
    Adopted(AsyncFd<OwnedFd>),
}

/// How a worker has ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ended {
    With(ExitStatus),
    /// Only its parent was notified.
    Unseen,
}

impl Ended {
    pub(super) fn is_success(&self) -> bool {
        matches!(self, Ended::With(status) if status.success()) || matches!(self, Ended::Unseen)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::With(status) => status.fmt(f),
            Ended::Unseen => f.write_str("in a way that only an earlier supervisor could see"),
        }
    }
}

/// Makes the process that follows lead a session and a process group of its own. A group within the
/// supervisor's session would be hung up by the kernel if one of its processes is stopped when the
/// supervisor ends.
fn leave_the_terminal() -> io::Result<()> {
    setsid()?;
    Ok(())
}

/// Makes the process that follows map memory from a third of its address space upwards, where its
/// client maps from the top downwards. A driver takes device addresses from its own process's
/// address space, and the client's program must be able to tell them from its own.
fn map_from_below() -> io::Result<()> {
    // SAFETY: asks for and sets flags of this process; 0xffffffff only asks.
    unsafe {
        let now = libc::personality(0xffff_ffff);
        libc::personality(now as libc::c_ulong | libc::ADDR_COMPAT_LAYOUT as libc::c_ulong);
    }
    // If that is not allowed, equal addresses are merely unlikely.
    Ok(())
}

impl Worker {
    /// Starts the process, in a session and a process group of its own.
    pub(super) fn spawn(order: &Order<'_>) -> io::Result<Worker> {
        let (ours, theirs) = messages::pair()?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        let (hear, say) = workers_log::pipe()?;
        let mut command = Command::new(&order.command.program);
        for variable in OWN_VARIABLES {
            command.env_remove(variable);
        }
        if std::env::var_os(queues::VARIABLE).is_none() {
            command.env(queues::VARIABLE, order.queues.to_string());
        }
        command
            .args(&order.command.args)
            .env(logs::FORMAT_VARIABLE, order.log_format.name())
            .envs(order.command.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::from(say))
            .kill_on_drop(true);
        // SAFETY: between fork and exec only system calls are made.
        let child =
            unsafe { command.pre_exec(leave_the_terminal).pre_exec(map_from_below) }.spawn()?;
        let id = child.id().ok_or_else(|| io::Error::other("the worker has ended already"))?;
        // SAFETY: `ours` is an open descriptor that the AsyncFd owns; nothing takes it out or
        // changes what it refers to.
        let control = unsafe { AsyncFd::register(ours) }.map_err(io::Error::from)?;
        let group = order
            .command
            .cgroup
            .as_ref()
            .map(|cgroup| cgroup.place(id))
            .transpose()
            .map_err(io::Error::other)?;
        workers_log::relay(&hear, id, order.log_format)?;
        Ok(Worker { process: Handle::Child(child), id, control, log: Some(hear), _group: group })
    }

    /// Takes over a process that an earlier supervisor has started, by a socket that it has
    /// accepted.
    pub(super) fn adopt(id: u32, control: OwnedFd) -> io::Result<Worker> {
        rustix::io::ioctl_fionbio(&control, true)?;
        let pid = Pid::from_raw(id.cast_signed()).ok_or(io::ErrorKind::InvalidData)?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        // SAFETY: an open descriptor that the AsyncFd owns; nothing takes it out or changes what it
        // refers to.
        let process = unsafe { AsyncFd::register_with_interest(process, Interest::READABLE) }
            .map_err(io::Error::from)?;
        // SAFETY: as above.
        let control = unsafe { AsyncFd::register(control) }.map_err(io::Error::from)?;
        // Its control group stays as it was, and is removed with those of other workers that have
        // ended.
        Ok(Worker { process: Handle::Adopted(process), id, control, log: None, _group: None })
    }

    /// Where its log is read, once: for it to keep.
    pub(super) fn take_log(&mut self) -> Option<OwnedFd> {
        self.log.take()
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Sends a message with a descriptor, and waits for a worker that is behind.
    pub(super) async fn deliver(
        &self,
        message: &ToWorker,
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let deadline = Instant::now() + DELIVERY;
        loop {
            match self.send(message, Some(descriptor)) {
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    tokio::time::sleep(DELIVERY_PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Sends a message, and perhaps a descriptor with it.
    pub(super) fn send(
        &self,
        message: &ToWorker,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        messages::send(self.control.get_ref().as_fd(), message, descriptor)
    }

    /// The next message, and the descriptor with it; `None` once the worker has closed its end.
    pub(super) async fn receive(&self) -> io::Result<Option<(ToSupervisor, Option<Foreign>)>> {
        loop {
            let mut ready = self.control.readable().await?;
            match ready.try_io(|control| receive(control.get_ref().as_fd())) {
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Waits for the process to end.
    pub(super) async fn wait(&mut self) -> io::Result<Ended> {
        match &mut self.process {
            Handle::Child(child) => Ok(Ended::With(child.wait().await?)),
            Handle::Adopted(process) => {
                // It stays readable.
                let _ready = process.readable().await?;
                Ok(reap(process.get_ref().as_fd()))
            }
        }
    }

    /// Kills the process and what it may have started.
    pub(super) fn kill(&self) {
        // Unlike a number, a descriptor never comes to mean another process. It may be gone
        // already.
        if let Handle::Adopted(process) = &self.process
            && pidfd_send_signal(process.get_ref(), Signal::KILL).is_err()
        {
            return;
        }
        if let Some(group) = Pid::from_raw(self.id.cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The next message of a worker, which may have been taken over: it has no descriptor but the one
/// that belongs to it, and what else comes is closed where nobody waits.
fn receive(from: BorrowedFd<'_>) -> io::Result<Option<(ToSupervisor, Option<Foreign>)>> {
    let mut attached = Vec::new();
    let message = messages::receive_with::<ToSupervisor>(from, &mut attached);
    if attached.is_empty() {
        return message.map(|message| message.map(|message| (message, None)));
    }
    let wanted = match &message {
        Ok(Some(message)) if attached.len() == 1 && !closing::is_behind() => {
            may_have(message, attached[0].as_fd())
        }
        _ => false,
    };
    if !wanted {
        closing::elsewhere(attached);
        message?;
        let sentence = "a descriptor is attached that does not belong to the message";
        return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
    }
    let descriptor = attached.pop().map(Foreign::new);
    message.map(|message| message.map(|message| (message, descriptor)))
}

/// Whether a descriptor belongs to a message.
fn may_have(message: &ToSupervisor, descriptor: BorrowedFd<'_>) -> bool {
    match message {
        ToSupervisor::Bind { .. } | ToSupervisor::Listen { .. } | ToSupervisor::Connect { .. } => {
            closing::is_socket(descriptor)
        }
        ToSupervisor::Share { .. } | ToSupervisor::Kept { .. } | ToSupervisor::Calls => {
            !closing::is_socket(descriptor)
        }
        // Of a later release.
        ToSupervisor::Unknown(_) => true,
        _ => false,
    }
}

/// How a process has ended, if this process is its parent: it is, if it has become another program
/// since.
fn reap(process: BorrowedFd<'_>) -> Ended {
    let Ok(Some(status)) =
        waitid(WaitId::PidFd(process), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
    else {
        return Ended::Unseen;
    };
    let raw = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code << 8,
        (None, Some(signal)) => signal,
        (None, None) => return Ended::Unseen,
    };
    Ended::With(ExitStatus::from_raw(raw))
}
