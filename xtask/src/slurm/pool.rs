//! The broker, its servers, and what an administrator sees of them.

use super::daemons::{Daemon, free_port};
use crate::apart::within;
use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

/// How long something may take to come up.
const STARTUP: Duration = Duration::from_secs(60);
/// What belongs to the broker and the servers, at places of their own: all are on one machine.
const BROKER: &str = "/run/broker";

pub(super) struct Pool {
    pub(super) broker: Daemon,
    pub(super) servers: Vec<Daemon>,
    pub(super) url: String,
    pub(super) fingerprint: String,
    admin: String,
}

/// A lease that is not over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) number: u64,
    pub(super) owner: String,
    pub(super) group: String,
    /// The number of its job.
    pub(super) job: u32,
    pub(super) expires: String,
    pub(super) sessions: u64,
    pub(super) devices: BTreeSet<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Makes a token of the broker's.
fn token(role: &str, owner: &str) -> Result<String> {
    let mut command = Command::new("outboard");
    command.args(["token", "create", "--json", "--broker", "--state", BROKER]);
    let output = command.args(["--role", role, "--owner", owner]).output()?;
    let made: Value = serde_json::from_slice(&output.stdout).context("no token was made")?;
    Ok(text(&made["token"]))
}

/// Writes a file for root alone.
pub(super) fn write_secret(path: &str, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {path}"))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o400))?)
}

impl Pool {
    /// A broker and so many servers on the software device.
    pub(super) fn start(count: usize) -> Result<Pool> {
        let listen = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new("outboard");
        command.args(["broker", "--listen", &listen, "--state", BROKER]);
        let broker = Daemon::start("broker", command)?;
        within(STARTUP, "the broker listens", || Ok(broker.said().contains("brokering")))?;
        let mut command = Command::new("outboard");
        command.args(["token", "--broker", "--state", BROKER, "fingerprint"]);
        let output = command.output().context("cannot start outboard")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let fingerprint = said.split_whitespace().find(|word| word.starts_with("sha256:"));
        let fingerprint = fingerprint.context("the broker has no fingerprint")?.to_owned();
        let url = format!("https://{listen}");
        let admin = token("admin", "root")?;
        let mut pool = Pool { broker, servers: Vec::new(), url, fingerprint, admin };
        write_secret("/run/server.token", &token("server", "servers")?)?;
        for at in 1..=count {
            let server = Daemon::start(&format!("gpu{at}"), pool.server(at))?;
            pool.servers.push(server);
        }
        within(STARTUP, "all servers are in the pool", || Ok(pool.ready()? == count))?;
        Ok(pool)
    }

    fn server(&self, at: usize) -> Command {
        let mut command = Command::new("outboard");
        command.args(["serve", "--listen", "127.0.0.1:0", "--driver", "cpu", "--tls", "on"]);
        command.args(["--socket", "none", "--warm", "0", "--drain", "0"]);
        command.args(["--state", &format!("/run/gpu{at}"), "--pool-name", &format!("gpu{at}")]);
        command.args(["--records", &format!("/run/gpu{at}/records")]);
        command.args(["--pool", &self.url, "--pool-fingerprint", &self.fingerprint]);
        command.args(["--pool-token-file", "/run/server.token"]);
        command.env("XDG_CACHE_HOME", format!("/run/gpu{at}/cache")).env("OUTBOARD_CONFIG", "none");
        command
    }

    /// The token of a scheduler.
    pub(super) fn scheduler(&self) -> Result<String> {
        token("scheduler", "slurm")
    }

    /// The token of a node.
    pub(super) fn node(&self, name: &str) -> Result<String> {
        token("node", &format!("{name}@slurm"))
    }

    fn list(&self, what: &str) -> Result<Vec<Value>> {
        let mut command = Command::new("outboard");
        command.args(["pool", "--pool", &self.url, "--pool-fingerprint", &self.fingerprint]);
        command.args(["--json", what]);
        let output = command.env("OUTBOARD_POOL_TOKEN", &self.admin).output()?;
        if !output.status.success() {
            bail!("`outboard pool {what}`: {}", String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).context("`outboard pool --json` prints a list")
    }

    /// How many servers are ready.
    pub(super) fn ready(&self) -> Result<usize> {
        let servers = self.list("devices")?;
        Ok(servers.iter().filter(|server| server["condition"] == "ready").count())
    }

    /// How long the broker has not heard of a server, once it takes that server for silent.
    pub(super) fn silent(&self, at: usize) -> Result<Option<SignedDuration>> {
        let servers = self.list("devices")?;
        let server = servers.iter().find(|server| server["name"] == format!("gpu{at}"));
        let server = server.context("the server is known")?;
        let heard: Timestamp = text(&server["heard"]).parse().context("a time")?;
        let is_silent = server["condition"] == "silent";
        Ok(is_silent.then(|| Timestamp::now().duration_since(heard)))
    }

    /// The leases that are not over.
    pub(super) fn leases(&self) -> Result<Vec<Lease>> {
        let leases = self.list("leases")?;
        let going = leases.iter().filter(|lease| lease["over"].is_null());
        going.map(lease).collect()
    }

    /// Devices that two leases have.
    pub(super) fn twice(&self) -> Result<Vec<String>> {
        let mut seen = BTreeSet::new();
        let devices = self.leases()?.into_iter().flat_map(|lease| lease.devices);
        Ok(devices.filter(|device| !seen.insert(device.clone())).collect())
    }

    /// The lease of a job.
    pub(super) fn lease_of(&self, job: u32) -> Result<Option<Lease>> {
        Ok(self.leases()?.into_iter().find(|lease| lease.job == job))
    }
}

fn device(granted: &Value) -> String {
    format!("{}/{}", text(&granted["server"]), text(&granted["device"]))
}

fn lease(value: &Value) -> Result<Lease> {
    let purpose = text(&value["purpose"]);
    let job = purpose.rsplit('.').next().and_then(|job| job.parse().ok());
    let devices = value["devices"].as_array().context("a lease has devices")?;
    Ok(Lease {
        number: value["number"].as_u64().context("a lease has a number")?,
        owner: text(&value["owner"]),
        group: text(&value["group"]),
        job: job.with_context(|| format!("no job is in the purpose {purpose}"))?,
        expires: text(&value["expires"]),
        sessions: value["sessions"].as_u64().unwrap_or_default(),
        devices: devices.iter().map(device).collect(),
    })
}
