//! Connections that the person's `ssh` makes, with all that its configuration says.
//!
//! One process of ssh connects, asks what it has to ask, and goes to the background; the others are
//! its clients over a control socket, and need no configuration.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use outboard_wire::Code;

use crate::failure::Failure;

/// For how many seconds ssh stays connected for nobody, should this process be killed before it
/// has started anything.
const IDLE: &str = "ControlPersist=10";
/// After three times so many seconds without an answer, the server's machine is gone.
const ALIVE: &str = "ServerAliveInterval=15";
/// How often another port is tried.
const TRIES: u32 = 5;

/// A connection.
pub(super) struct Connection {
    /// As in the list of servers, and as ssh understands it.
    pub(super) destination: String,
    control: PathBuf,
}

impl Connection {
    /// Connects; ssh itself says on standard error why it cannot.
    pub(super) fn open(destination: &str, control: PathBuf) -> Result<Connection, Failure> {
        let mut ssh = Command::new("ssh");
        ssh.args(["-M", "-f", "-N", "-T", "-S"]).arg(&control);
        ssh.args(["-o", IDLE, "-o", ALIVE, "-o", "ClearAllForwardings=yes"]);
        ssh.args(["-o", "RemoteCommand=none", "--", destination]);
        // What goes to the background keeps neither.
        ssh.stdin(Stdio::null()).stdout(Stdio::null());
        let status = ssh.status().map_err(|error| no_ssh(&error))?;
        if !status.success() {
            let message = format!("ssh does not reach {destination}; what it has said is above");
            let help = "try `ssh` with the same name by hand: what works there works here";
            return Err(Failure::new(Code::SshFailed, message, help));
        }
        Ok(Connection { destination: destination.to_owned(), control })
    }

    /// Starts a shell there, which reads what it is to do.
    pub(super) fn shell(&self) -> Result<Child, Failure> {
        let mut ssh = client(&self.control);
        ssh.args(["-T", "--", &self.destination, "sh"]);
        // Signals of the terminal are the program's.
        ssh.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        ssh.spawn().map_err(|error| no_ssh(&error))
    }

    /// A port of this machine's loopback interface that leads to an address there.
    pub(super) fn forward(&self, to: &str) -> Result<SocketAddr, Failure> {
        let mut said = String::new();
        for _ in 0..TRIES {
            let free =
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
            let Ok(at) = free else { break };
            let mut ssh = client(&self.control);
            ssh.args(["-O", "forward", "-L", &format!("{at}:{to}"), "--", &self.destination]);
            match quietly(&mut ssh) {
                Ok(None) => return Ok(at),
                Ok(Some(why)) => said = why,
                Err(error) => return Err(no_ssh(&error)),
            }
        }
        let message = format!("ssh forwards no port to {}: {}", self.destination, said.trim_end());
        let help = "it must be allowed to forward (AllowTcpForwarding of its sshd), or the server be reachable without ssh";
        Err(Failure::new(Code::SshFailed, message, help))
    }
}

/// Ends the connection of a control socket, with all that goes through it.
pub(super) fn close(control: &Path) {
    let mut ssh = client(control);
    let _ = quietly(ssh.args(["-O", "exit", "--", "connection"]));
}

/// ssh as the client of a connection: it makes none of its own, should that have ended.
fn client(control: &Path) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.args(["-F", "none", "-o", "ProxyCommand=false", "-S"].map(OsStr::new)).arg(control);
    ssh
}

/// Runs it; what it has said if it has failed.
fn quietly(ssh: &mut Command) -> io::Result<Option<String>> {
    ssh.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ssh.spawn()?;
    let mut said = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = pipe.read_to_string(&mut said);
    }
    Ok((!child.wait()?.success()).then_some(said))
}

fn no_ssh(error: &io::Error) -> Failure {
    let message = format!("`ssh` cannot be started: {error}");
    Failure::new(Code::SshFailed, message, "install OpenSSH's client (Debian: openssh-client)")
}
