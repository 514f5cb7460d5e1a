//! Ways from a client to a server.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::server::Server;
use crate::stage::Dist;

/// How commands travel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    Tcp,
    Tls,
    SharedMemory,
}

pub(super) const WAYS: [Way; 3] = [Way::Tcp, Way::Tls, Way::SharedMemory];

/// A server, and what a client must know of it.
pub(super) struct Served {
    pub(super) server: Server,
    env: Vec<(&'static str, String)>,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Tcp => "TCP",
            Way::Tls => "TLS",
            Way::SharedMemory => "shared memory",
        }
    }

    /// Starts a server that is reached this way, whose files are in a folder of its own.
    pub(super) fn serve(self, dist: &Dist, folder: &Path) -> Result<Served> {
        let state = folder.join("state");
        let path = state.to_str().context("the target folder has a strange name")?;
        let mut env = vec![("OUTBOARD_TRANSPORT", self.transport().to_owned())];
        let mut flags = vec!["--listen", "127.0.0.1:0", "--state", path];
        if matches!(self, Way::Tls) {
            flags.extend(["--tls", "on", "--require-authentication"]);
            let (token, fingerprint) = token(dist, path)?;
            env.push(("OUTBOARD_TOKEN", token));
            env.push(("OUTBOARD_TLS_FINGERPRINT", fingerprint));
        }
        let server = Server::start(command(dist, folder), &flags, Some("cpu"))?;
        Ok(Served { server, env })
    }

    fn transport(self) -> &'static str {
        match self {
            Way::Tcp | Way::Tls => "tcp",
            Way::SharedMemory => "shm",
        }
    }
}

impl Served {
    /// Has a client know the server.
    pub(super) fn tell(&self, mut client: Command) -> Command {
        client.envs(self.env.iter().map(|(name, value)| (name, value)));
        client
    }
}

/// A command of an installation that reads and writes nothing of this user's.
pub(super) fn command(dist: &Dist, folder: &Path) -> Command {
    let mut command = Command::new(dist.outboard());
    command.env("OUTBOARD_CONFIG", "none").env("XDG_CACHE_HOME", folder.join("cache"));
    command.env("XDG_RUNTIME_DIR", folder);
    command
}

/// A token, and the fingerprint of the server that keeps it in that folder.
fn token(dist: &Dist, state: &str) -> Result<(String, String)> {
    let mut command = Command::new(dist.outboard());
    command.env("OUTBOARD_CONFIG", "none");
    command.args(["token", "create", "--json", "--owner", "mixed", "--state", state]);
    let output = command.output().context("cannot start `outboard token`")?;
    if !output.status.success() {
        bail!("`outboard token create`: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let made: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("`outboard token create` prints JSON")?;
    let part = |name: &str| made[name].as_str().map(str::to_owned).context("a token has its parts");
    Ok((part("token")?, part("fingerprint")?))
}
