//! What dies, and what is away.

use super::ends::{begin_now, endless};
use super::kinds::program;
use super::so_many;
use crate::apart::{took, within};
use crate::slurm::site::{NODES, WORK};
use crate::slurm::world::{DEVICES, SOON, World};
use anyhow::{Context, Result, ensure};
use jiff::SignedDuration;
use std::time::{Duration, SystemTime};

/// How long a server is silent before it is left out.
const SILENT: SignedDuration = SignedDuration::from_secs(10);

pub(super) fn controller(world: &mut World) -> Result<()> {
    let script = format!("{}; while [ ! -e go ]; do sleep 0.2; done; {0}; echo done", program());
    let job = world.batch(&["--remote-gpus=1"], &script)?;
    let lease = world.lease(job)?;
    world.expect_printed(job, "works")?;
    kill_controller(world)?;
    ensure!(world.pool.lease_of(job)?.as_ref().map(|lease| lease.number) == Some(lease.number));
    world.controller.start_again()?;
    within(SOON, "Slurm knows the job", || Ok(world.state(job)? == "RUNNING"))?;
    std::fs::write(format!("{WORK}/go"), "")?;
    world.expect_printed(job, "done")?;
    so_many(&world.printed(job), 1)?;
    world.expect_ended(lease.number)
}

/// Kills slurmctld once it has written which jobs there are: it does so every few seconds, and
/// forgets younger jobs.
fn kill_controller(world: &mut World) -> Result<()> {
    let now = SystemTime::now();
    within(SOON, "Slurm writes its state", || {
        Ok(std::fs::metadata("/run/slurm/state/job_state")?.modified()? > now)
    })?;
    world.controller.kill()?;
    // Long enough for the lease to end, if anything ended it.
    std::thread::sleep(Duration::from_secs(4));
    Ok(())
}

pub(super) fn ended_without_controller(world: &mut World) -> Result<()> {
    let script = format!("{}; while [ ! -e end ]; do sleep 0.2; done; echo done", program());
    let job = world.batch(&["--remote-gpus=1"], &script)?;
    let lease = world.lease(job)?;
    world.expect_printed(job, "works")?;
    kill_controller(world)?;
    std::fs::write(format!("{WORK}/end"), "")?;
    world.expect_printed(job, "done")?;
    ensure!(world.pool.lease_of(job)?.is_some(), "nobody was there to end the lease");
    world.controller.start_again()?;
    world.expect_ended(lease.number)
}

pub(super) fn node(world: &mut World) -> Result<()> {
    let job = world.batch(&["--remote-gpus=1", "--nodelist=n1"], &endless())?;
    let lease = world.used_lease(job)?;
    let was = NODES.iter().position(|node| *node == "n1").context("a node")?;
    world.nodes[was].kill()?;
    kill_steps(job)?;
    // As the site's health check does, or Slurm itself after SlurmdTimeout.
    world.scontrol(&["update", "NodeName=n1", "State=DOWN", "Reason=dead"])?;
    world.expect_ended(lease.number)?;
    // A lease ends before Slurm takes its job for one that waits, which alone can be moved.
    within(SOON, "the job waits", || Ok(world.state(job)? == "PENDING"))?;
    world.scontrol(&["update", &format!("JobId={job}"), "ReqNodeList=n2"])?;
    begin_now(world, job)?;
    let second = world.used_lease(job)?;
    ensure!(second.number != lease.number, "the dead node's lease goes on");
    world.nodes[was].start_again()?;
    // It comes back by itself or by this, which Slurm refuses if it has come back.
    within(SOON, "node n1 is up", || {
        let _ = world.scontrol(&["update", "NodeName=n1", "State=RESUME"]);
        Ok(!world.node_state("n1")?.contains("down"))
    })
}

/// Ends what a node runs of a job, as if its power had gone.
fn kill_steps(job: u32) -> Result<()> {
    let wanted = format!("slurmstepd: [{job}.");
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let of_job = format!("\0SLURM_JOB_ID={job}\0");
        let has = |text: &[u8], part: &str| {
            text.windows(part.len()).any(|window| window == part.as_bytes())
        };
        if has(&line, &wanted) || has(&environment, &of_job) {
            let process = rustix::process::Pid::from_raw(process).context("a process")?;
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
    Ok(())
}

pub(super) fn broker_at_begin(world: &mut World) -> Result<()> {
    world.pool.broker.kill()?;
    let said = world.refused("srun", &["--remote-gpus=1", "true"])?;
    ensure!(said.contains("has no remote GPUs") && said.contains("cannot be reached"), "{said}");
    let job = world.batch(&["--remote-gpus=1"], &program())?;
    within(SOON, "the job's comment says why it waits", || {
        let shown = world.shown(job)?;
        Ok(shown.contains("JobState=PENDING") && shown.contains("cannot be reached"))
    })?;
    world.pool.broker.start_again()?;
    begin_now(world, job)?;
    world.expect_printed(job, "works")
}

pub(super) fn broker_at_end(world: &mut World) -> Result<()> {
    let job = world.batch(&["--remote-gpus=1"], &endless())?;
    let lease = world.used_lease(job)?;
    world.pool.broker.kill()?;
    world.output("ada", "scancel", &[&job.to_string()])?;
    within(SOON, "the job is gone", || Ok(world.state(job)?.is_empty()))?;
    world.pool.broker.start_again()?;
    within(SOON, "the broker is back", || Ok(world.pool.leases().is_ok()))?;
    world.expect_ended(lease.number)
}

pub(super) fn server(world: &mut World) -> Result<()> {
    // They may have yet to find the broker that an earlier case has started anew.
    within(SOON, "all servers are in the pool", || Ok(world.pool.ready()? == DEVICES))?;
    within(SOON, "all licences are there", || Ok(world.licenses()? == DEVICES))?;
    world.pool.servers[DEVICES - 1].kill()?;
    let mut silent = None;
    let gone = took(SOON, "a licence goes", || {
        silent = world.pool.silent(DEVICES)?;
        Ok(silent.is_some() && world.licenses()? == DEVICES - 1)
    })?;
    world.pool.servers[DEVICES - 1].start_again()?;
    let back = took(SOON, "the licence is back", || Ok(world.licenses()? == DEVICES))?;
    eprintln!("    gone after {:.1} s, back after {:.1} s", gone.as_secs_f64(), back.as_secs_f64());
    let silent = silent.context("the server was silent")?;
    ensure!(silent >= SILENT, "a server that was heard of {silent:#} ago is left out");
    Ok(())
}
