//! The cluster with its pool, and what a case does with them.

use super::accounts::{self, Accounts};
use super::daemons::Daemon;
use super::munge;
use super::pool::{Lease, Pool};
use super::site::{self, NODES, USERS, WORK};
use crate::apart::{took, within};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A lease ends in this time.
pub(super) const ENDS: Duration = Duration::from_secs(10);
/// A job begins, or is over, in this time, also where all of CI runs beside it.
pub(super) const SOON: Duration = Duration::from_secs(60);
/// The devices of the pool.
pub(super) const DEVICES: usize = 3;

pub(super) struct World {
    pub(super) pool: Pool,
    pub(super) controller: Daemon,
    pub(super) nodes: Vec<Daemon>,
    _sync: Daemon,
    _accounts: Accounts,
    _munge: Daemon,
}

/// What a case does.
pub(super) type Run = fn(&mut World) -> Result<()>;

fn node(name: &str) -> Command {
    let mut command = Command::new("slurmd");
    command.args(["-D", "-N", name, "-f", site::CONFIGURATION]);
    command
}

impl World {
    pub(super) fn start() -> Result<World> {
        site::users()?;
        let munge = munge::start()?;
        let pool = Pool::start(DEVICES)?;
        let accounts = Accounts::start()?;
        site::write(&pool, &accounts)?;
        accounts::open("ada")?;
        // Before Slurm is there: the file is written, and nobody is told.
        World::outboard(&["slurm", "sync", "--once"]).output().context("cannot start outboard")?;
        let mut command = Command::new("slurmctld");
        command.args(["-D", "-i", "-f", site::CONFIGURATION]);
        command.uid(site::SLURM.1).gid(site::SLURM.1);
        let controller = Daemon::start("slurmctld", command)?;
        let sync = Daemon::start("sync", World::outboard(&["slurm", "sync"]))?;
        let nodes = NODES.iter().map(|name| Daemon::start(name, node(name)));
        let nodes = nodes.collect::<Result<_>>()?;
        let world =
            World { pool, controller, nodes, _sync: sync, _accounts: accounts, _munge: munge };
        world.is_up()?;
        Ok(world)
    }

    /// The command with the settings of the file that the service reads.
    fn outboard(args: &[&str]) -> Command {
        let script = "set -a; . /etc/outboard/slurm.env; exec outboard \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "outboard"]).args(args);
        command
    }

    fn is_up(&self) -> Result<()> {
        within(SOON, "all nodes are idle", || {
            let states = said(Command::new("sinfo").args(["-hN", "-p", "usual", "-o", "%T"]))?;
            Ok(states.lines().filter(|state| *state == "idle").count() == NODES.len())
        })?;
        within(SOON, "there are as many licences as devices", || Ok(self.licenses()? == DEVICES))
    }

    /// Runs a case, and sees to it that nothing is left of it.
    pub(super) fn attempt(&mut self, run: Run) -> Result<()> {
        let came = run(self);
        let cleared = self.clear();
        came.and(cleared.context("the next case cannot begin"))
    }

    fn clear(&self) -> Result<()> {
        for (user, _) in USERS {
            said(Command::new("scancel").args(["--quiet", "--user", user]))?;
        }
        within(SOON, "no job is left", || Ok(said(Command::new("squeue").arg("-h"))?.is_empty()))?;
        within(SOON, "no lease is left", || Ok(self.pool.leases()?.is_empty()))
    }

    /// How many licences Slurm has.
    pub(super) fn licenses(&self) -> Result<usize> {
        let text = said(Command::new("scontrol").args(["-o", "show", "licenses", "rgpu"]))?;
        let total = text.split_whitespace().find_map(|word| word.strip_prefix("Total="));
        total.and_then(|number| number.parse().ok()).context("Slurm has no licences `rgpu`")
    }

    /// Runs a command as a user.
    pub(super) fn output(&self, user: &str, program: &str, args: &[&str]) -> Result<Output> {
        let mut command = Command::new("timeout");
        let number = USERS.iter().find(|(name, _)| *name == user).map_or(0, |(_, number)| *number);
        command.args(["60", program]).args(args).uid(number).gid(number).current_dir(WORK);
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {program}"))
    }

    /// What a user's `srun` prints, which must succeed.
    pub(super) fn srun(&self, args: &[&str]) -> Result<String> {
        let output = self.output("ada", "srun", args)?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("`srun {}` failed: {printed}{said}", args.join(" "));
        }
        Ok(printed)
    }

    /// What a command says that is to be refused.
    pub(super) fn refused(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = self.output("ada", program, args)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            bail!("`{program} {}` was not refused", args.join(" "));
        }
        Ok(said)
    }

    /// A batch job of Ada's; its number.
    pub(super) fn batch(&self, args: &[&str], script: &str) -> Result<u32> {
        let mut all = vec!["--parsable", "--output=wrap-%j.out"];
        all.extend(args);
        let wrapped = format!("--wrap={script}");
        all.push(&wrapped);
        let output = self.output("ada", "sbatch", &all)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let number = printed.trim().parse();
        number.with_context(|| format!("sbatch: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// What a batch job has printed so far.
    pub(super) fn printed(&self, job: u32) -> String {
        fs::read_to_string(format!("{WORK}/wrap-{job}.out")).unwrap_or_default()
    }

    /// Waits until a batch job has printed something.
    pub(super) fn expect_printed(&self, job: u32, text: &str) -> Result<()> {
        within(SOON, "", || Ok(self.printed(job).contains(text)))
            .map_err(|_| anyhow::anyhow!("job {job} did not print `{text}`: {}", self.printed(job)))
    }

    /// A job's state; empty if it is gone.
    pub(super) fn state(&self, job: u32) -> Result<String> {
        let mut command = Command::new("squeue");
        let output = command.args(["-h", "-j", &job.to_string(), "-o", "%T"]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// What `scontrol show job` says.
    pub(super) fn shown(&self, job: u32) -> Result<String> {
        said(Command::new("scontrol").args(["show", "job", &job.to_string()]))
    }

    /// The lease that a job has, or will soon have.
    pub(super) fn lease(&self, job: u32) -> Result<Lease> {
        let mut found = None;
        within(SOON, &format!("job {job} has a lease"), || {
            found = self.pool.lease_of(job)?;
            Ok(found.is_some())
        })?;
        found.context("it was there")
    }

    /// A lease that sessions use.
    pub(super) fn used_lease(&self, job: u32) -> Result<Lease> {
        let mut found = None;
        within(SOON, &format!("job {job} uses a lease"), || {
            found = self.pool.lease_of(job)?.filter(|lease| lease.sessions > 0);
            Ok(found.is_some())
        })?;
        found.context("it was there")
    }

    /// A lease ends in time.
    pub(super) fn expect_ended(&self, number: u64) -> Result<()> {
        let is_over = || Ok(self.pool.leases()?.iter().all(|lease| lease.number != number));
        let took = took(ENDS, &format!("lease {number} ends"), is_over)?;
        eprintln!("    the lease ended after {:.1} s", took.as_secs_f64());
        Ok(())
    }

    /// A node's state.
    pub(super) fn node_state(&self, node: &str) -> Result<String> {
        said(Command::new("sinfo").args(["-hn", node, "-p", "usual", "-o", "%T"]))
    }

    /// A command of the administrator's.
    pub(super) fn scontrol(&self, args: &[&str]) -> Result<String> {
        said(Command::new("scontrol").args(args))
    }
}

/// What a command prints, which must succeed.
fn said(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
