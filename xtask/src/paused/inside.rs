//! What runs in the namespaces: a server, a machine, and the pause.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{APART, PROGRAM};
use crate::apart::{self, Case, within};
use crate::server::Server;
use crate::stage::Dist;
use crate::vm::{HOST, Machine, Monitor, Network};
use crate::{programs, util};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    only: Option<String>,
}

/// Longer than a server believes that a silent machine is there (`--keepalive`).
const PAUSE: Duration = Duration::from_secs(60);
/// How long sessions of lost machines are kept, in seconds: longer than that.
const GRACE: &str = "120";
/// How long a machine may take to start a program, or to go on.
const PATIENCE: Duration = Duration::from_secs(120);
/// After so many launches the program waits for them.
const ROUND: u64 = 20;
/// What the program ends with when its session is ended.
const ENDED: u8 = 3;

const ALL: &[Case<Dist>] = &[
    Case { name: "over a network", run: |dist| attempt(dist, Way::Network) },
    Case { name: "through shared memory", run: |dist| attempt(dist, Way::SharedMemory) },
    Case { name: "over vsock", run: |dist| attempt(dist, Way::Vsock) },
];

/// How the machine reaches the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Network,
    SharedMemory,
    Vsock,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    Network::make_tap()?;
    let mut dist = Dist::laid_out()?;
    apart::run(&APART, ALL, args.only.as_deref(), |run| run(&mut dist))
}

/// A program uses a server from a machine that is paused meanwhile: its session goes on.
fn attempt(dist: &Dist, way: Way) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let world = World::start(dist, way, folder.path())?;
    let machine = thread::spawn({
        let (machine, command) = (world.machine(), world.command());
        move || machine.run(&command)
    });
    let mut first = None;
    within(PATIENCE, "the program in the machine uses the server", || {
        first = world.session()?;
        Ok(first.as_ref().is_some_and(|session| session.launches > 0))
    })?;
    let first = first.context("it has a session")?;
    ensure!(first.transport == way.transport(), "it uses {}", first.transport);

    world.let_it_run(false)?;
    thread::sleep(Duration::from_secs(1));
    let paused = world.session()?.context("the session is gone at once")?;
    thread::sleep(PAUSE);
    let still = world.session()?.context("the session is gone after the pause")?;
    // What the machine had sent just before may be noticed late.
    let has_run = still.launches > paused.launches + ROUND;
    ensure!(!has_run, "it was not paused: {paused:?} became {still:?}");
    // The device of vsock goes on without the machine, so that nobody misses it.
    let state = if way == Way::Vsock { "serving" } else { "disconnected" };
    ensure!(still.state == state, "the session is {} at the end of the pause", still.state);
    world.let_it_run(true)?;

    within(PATIENCE, "the session goes on", || {
        let session = world.session()?.context("there is none")?;
        ensure!(session.id == first.id, "it is another session");
        Ok(session.launches > still.launches + ROUND)
    })?;
    world.outboard(&["kill", "--all"])?;
    match machine.join() {
        Ok(Ok(ENDED)) => Ok(()),
        Ok(Ok(status)) => bail!("the program ended with status {status}"),
        Ok(Err(error)) => Err(error),
        Err(_) => bail!("the thread of the machine has panicked"),
    }
}

/// What the server says of the program's session.
#[derive(Debug)]
struct Session {
    id: String,
    transport: String,
    state: String,
    launches: u64,
}

/// A server, and the folder of a machine.
struct World<'a> {
    dist: &'a Dist,
    way: Way,
    folder: &'a Path,
    server: Server,
}

impl Way {
    fn transport(self) -> &'static str {
        match self {
            Way::Network => "tcp",
            Way::SharedMemory => "ivshmem",
            Way::Vsock => "vsock",
        }
    }
}

impl<'a> World<'a> {
    fn start(dist: &'a Dist, way: Way, folder: &'a Path) -> Result<World<'a>> {
        let address = format!("{HOST}:0");
        let mut flags = vec!["--listen", &address, "--socket", "none", "--grace", GRACE];
        // Who the machine is does not matter here.
        flags.extend(["--tls", "off", "--allow-anonymous"]);
        let door = folder.join(way.transport()).display().to_string();
        match way {
            Way::Network => {}
            Way::SharedMemory => flags.extend(["--ivshmem", &door]),
            Way::Vsock => flags.extend(["--vsock", &door]),
        }
        let server = Server::start(Command::new(dist.outboard()), &flags, Some("cpu"))?;
        Ok(World { dist, way, folder, server })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn machine(&self) -> Machine {
        let door = self.path(self.way.transport());
        let has_network = self.way != Way::Vsock;
        Machine {
            memory: 2048,
            limit: 600,
            monitor: Some(self.path("monitor")),
            pid_file: Some(self.path("pid")),
            network: has_network.then_some(Network::Tap),
            ivshmem: (self.way == Way::SharedMemory).then(|| door.clone()),
            vsock: (self.way == Way::Vsock).then_some(door),
            ..Machine::default()
        }
    }

    /// What the machine runs.
    fn command(&self) -> Vec<String> {
        let server = match self.way {
            Way::Vsock => "vsock:host",
            Way::Network | Way::SharedMemory => &self.server.address,
        };
        let words = [
            "env",
            "OUTBOARD_TLS=off",
            &format!("OUTBOARD_TRANSPORT={}", self.way.transport()),
            &self.dist.outboard().display().to_string(),
            "run",
            "--server",
            server,
            "--",
            &programs::dir().join(PROGRAM).display().to_string(),
            "16",
            "copies",
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Pauses the machine, or has it go on.
    fn let_it_run(&self, runs: bool) -> Result<()> {
        if self.way != Way::Vsock {
            let command = if runs { "cont" } else { "stop" };
            return Monitor::connect(&self.path("monitor"))?.execute(command);
        }
        // The device's program carries nothing any more after a pause by the monitor.
        let text = std::fs::read_to_string(self.path("pid")).context("QEMU has no process")?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw).context("that is none")?;
        let signal = if runs { Signal::CONT } else { Signal::STOP };
        kill_process(pid, signal).context("cannot signal QEMU")
    }

    /// The session of the program, if it has one.
    fn session(&self) -> Result<Option<Session>> {
        let said: Value = serde_json::from_str(&self.outboard(&["sessions", "--json"])?)?;
        // One that has yet to move may have given up its first session.
        let sessions = said["sessions"].as_array().into_iter().flatten();
        let launches = |session: &Value| session["commands"]["launch"].as_u64().unwrap_or_default();
        let Some(session) = sessions.max_by_key(|session| launches(session)) else {
            return Ok(None);
        };
        let text = |name: &str| session[name].as_str().unwrap_or_default().to_owned();
        let launches = launches(session);
        Ok(Some(Session {
            id: text("id"),
            transport: text("transport"),
            state: text("state"),
            launches,
        }))
    }

    /// Asks the server as its administrator.
    fn outboard(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(self.dist.outboard());
        util::said(command.args(args).args(["--server", &self.server.address]))
    }
}
