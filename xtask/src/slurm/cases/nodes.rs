//! What root of a node can do by what the node has.

use super::ends::endless;
use super::kinds::program;
use super::so_many;
use crate::slurm::site::{CLUSTER, NODES, node_token};
use crate::slurm::world::World;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The settings of controller and nodes.
const SETTINGS: &str = "/etc/outboard/slurm.env";
/// Where a node's root writes what it gets.
const LOOT: &str = "/run/loot";

/// What a node's root gets of a job, as `Prolog` would.
struct Fetched {
    output: Output,
    folder: PathBuf,
}

impl Fetched {
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    fn has(&self, name: &str) -> bool {
        self.folder.join(name).is_file()
    }

    /// It has neither lease nor key, and the reason is this.
    fn is_refused(&self, because: &str) -> Result<()> {
        let has = ["lease", "key.pem", "environment"].map(|name| self.has(name));
        ensure!(has == [false; 3] && self.has("refused"), "{}: {has:?}", self.folder.display());
        ensure!(self.said().contains(because), "{}", self.said());
        Ok(())
    }
}

/// Who has that token says that it is the node `says`.
fn fetch(world: &World, job: u32, token: &str, says: &str) -> Result<Fetched> {
    let folder = Path::new(LOOT).join(format!("{job}.{says}"));
    let _ = std::fs::remove_dir_all(LOOT);
    let output = Command::new("outboard")
        .args(["slurm", "prolog", "--folder", LOOT])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("OUTBOARD_CONFIG", "none")
        .env("OUTBOARD_POOL", &world.pool.url)
        .env("OUTBOARD_POOL_FINGERPRINT", &world.pool.fingerprint)
        .env("OUTBOARD_POOL_TOKEN_FILE", token)
        .env("SLURM_JOB_ID", job.to_string())
        .env("SLURM_CLUSTER_NAME", CLUSTER)
        .env("SLURM_JOB_UID", "0")
        .env("SLURM_JOB_GID", "0")
        .env("SLURMD_NODENAME", says)
        .output()
        .context("cannot start outboard")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(Fetched { output, folder })
}

/// A node is done with a job that was cancelled before it began there; by default it waits a
/// minute for a broker that is away.
pub(super) fn cancelled_before(world: &mut World) -> Result<()> {
    let node = NODES[0];
    let job = world.batch(&["--remote-gpus=1", &format!("--nodelist={node}")], &endless())?;
    let lease = world.used_lease(job)?;
    world.output("ada", "scancel", &[&job.to_string()])?;
    world.expect_ended(lease.number)?;
    let begun = Instant::now();
    fetch(world, job, &node_token(node), node)?.is_refused("the pool has no lease for it on n1")?;
    ensure!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    Ok(())
}

pub(super) fn own_jobs_only(world: &mut World) -> Result<()> {
    let [own, other] = NODES;
    let job = world.batch(&["--remote-gpus=1", &format!("--nodelist={own}")], &endless())?;
    let lease = world.used_lease(job)?;
    // Of the job on its own machine it sees everything anyway.
    let fetched = fetch(world, job, &node_token(own), own)?;
    ensure!(fetched.has("lease") && fetched.has("key.pem"), "{}", fetched.said());

    let token = node_token(other);
    fetch(world, job, &token, other)?.is_refused("the pool has no lease for it on n2")?;
    fetch(world, job, &token, own)?.is_refused("a token of n2@slurm with the role node")?;

    let number = lease.number.to_string();
    for args in [
        &["pool", "leases"][..],
        &["pool", "devices"],
        &["pool", "queue"],
        &["pool", "why", &number],
        &["pool", "end", &number],
        &["run", "--gpus", "1", "--no-wait", "--", "true"],
    ] {
        for token in [&node_token(own), &token] {
            let output = Command::new("outboard")
                .args(args)
                .env("OUTBOARD_CONFIG", "none")
                .env("OUTBOARD_POOL", &world.pool.url)
                .env("OUTBOARD_POOL_FINGERPRINT", &world.pool.fingerprint)
                .env("OUTBOARD_POOL_TOKEN_FILE", token)
                .output()
                .context("cannot start outboard")?;
            let said = String::from_utf8_lossy(&output.stderr);
            let is_refused = said.contains("has the role node");
            ensure!(!output.status.success() && is_refused, "`{}`: {said}", args.join(" "));
        }
    }
    let now = world.pool.lease_of(job)?.context("the lease goes on")?;
    ensure!(now.number == lease.number && world.state(job)? == "RUNNING", "{now:?}");
    Ok(())
}

pub(super) fn set_up_as_before(world: &mut World) -> Result<()> {
    let now = std::fs::read_to_string(SETTINGS)?;
    let before = now.lines().filter(|line| !line.starts_with("OUTBOARD_SLURM_NODE_TOKEN_FILE="));
    std::fs::write(SETTINGS, before.map(|line| format!("{line}\n")).collect::<String>())?;
    let ran = world.srun(&["--remote-gpus=1", "--nodelist=n1", &program()]);
    std::fs::write(SETTINGS, now)?;
    so_many(&ran?, 1)?;
    let log = world.pool.broker.said();
    ensure!(log.contains("a job's key was fetched with the scheduler's token"), "{log}");
    Ok(())
}
