//! Ways in which jobs end.

use crate::apart::within;
use crate::slurm::inside::PROGRAMS;
use crate::slurm::world::{SOON, World};
use anyhow::{Result, ensure};
use std::time::Duration;

/// A job that uses its devices until it is ended.
pub(super) fn endless() -> String {
    format!("{PROGRAMS}/endless")
}

pub(super) fn cancelled(world: &mut World) -> Result<()> {
    let job = world.batch(&["--remote-gpus=2"], &endless())?;
    let lease = world.used_lease(job)?;
    world.output("ada", "scancel", &[&job.to_string()])?;
    world.expect_ended(lease.number)
}

pub(super) fn requeued(world: &mut World) -> Result<()> {
    let job = world.batch(&["--remote-gpus=1"], &endless())?;
    let first = world.used_lease(job)?;
    world.scontrol(&["requeue", &job.to_string()])?;
    world.expect_ended(first.number)?;
    // Slurm lets a requeued job wait for two minutes.
    begin_now(world, job)?;
    let second = world.used_lease(job)?;
    ensure!(second.number != first.number, "the lease of the first run is that of the second");
    Ok(())
}

/// How long a node takes a job that begins anew for the one that it has just ended: it compares
/// whole seconds.
const SAME: Duration = Duration::from_secs(3);

/// Has a job that was requeued begin soon.
pub(super) fn begin_now(world: &World, job: u32) -> Result<()> {
    within(SOON, "the job waits", || Ok(world.state(job)? == "PENDING"))?;
    std::thread::sleep(SAME);
    world.scontrol(&["update", &format!("JobId={job}"), "StartTime=now"]).map(drop)
}

/// Ada's job has all processors; an urgent one needs them.
fn preempted(world: &World, partition: &str) -> Result<u32> {
    let all = ["--remote-gpus=1", "--nodes=2", "--exclusive", "--partition", partition];
    let job = world.batch(&all, &endless())?;
    let lease = world.used_lease(job)?;
    let urgent = ["--remote-gpus=2", "--nodes=2", "--exclusive", "--partition=usual"];
    let urgent = world.batch(&urgent, &endless())?;
    world.used_lease(urgent)?;
    world.expect_ended(lease.number)?;
    Ok(job)
}

pub(super) fn preempted_and_requeued(world: &mut World) -> Result<()> {
    let job = preempted(world, "again")?;
    within(SOON, "the job waits again", || Ok(world.state(job)? == "PENDING"))
}

pub(super) fn preempted_and_cancelled(world: &mut World) -> Result<()> {
    let job = preempted(world, "gone")?;
    within(SOON, "the job is gone", || Ok(world.state(job)?.is_empty()))
}
