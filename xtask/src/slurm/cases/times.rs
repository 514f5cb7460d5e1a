//! Jobs that go on for longer than was said when they began.

use super::ends::endless;
use super::kinds::{program, seconds, seconds_now};
use crate::apart::within;
use crate::slurm::site::WORK;
use crate::slurm::world::{SOON, World};
use anyhow::{Result, ensure};
use std::fs;
use std::time::Duration;

/// How much longer a lease is than its job, in seconds, and how often `sync` looks.
const SLACK: i64 = 12;

/// The seconds until a job's lease ends.
fn left(world: &World, job: u32) -> Result<i64> {
    Ok(seconds(&world.lease(job)?.expires)? - seconds_now()?)
}

fn update(world: &World, job: u32, what: &str) -> Result<()> {
    world.scontrol(&["update", &format!("JobId={job}"), what]).map(drop)
}

pub(super) fn extended(world: &mut World) -> Result<()> {
    let script = format!("{}; while [ ! -e more ]; do sleep 0.2; done; {0}; echo done", program());
    let job = world.batch(&["--remote-gpus=1", "--time=1"], &script)?;
    world.expect_printed(job, "works")?;
    let number = world.lease(job)?.number;
    ensure!((0..=60 + SLACK).contains(&left(world, job)?), "it is longer than the job");
    update(world, job, "TimeLimit=20")?;
    within(SOON, "the lease is as long as the job", || Ok(left(world, job)? > 1200 - SLACK))?;
    // A shorter limit ends the job, and the job's end the lease: it is not taken back before.
    update(world, job, "TimeLimit=10")?;
    fs::write(format!("{WORK}/more"), "")?;
    world.expect_printed(job, "done")?;
    ensure!(world.printed(job).matches("works").count() == 2, "{}", world.printed(job));
    world.expect_ended(number)
}

pub(super) fn too_long(world: &mut World) -> Result<()> {
    let job = world.batch(&["--remote-gpus=1", "--time=1"], &endless())?;
    world.used_lease(job)?;
    // The broker lets no lease live longer than a week.
    update(world, job, "TimeLimit=30-0")?;
    within(SOON, "the job's comment says that the lease is shorter", || {
        Ok(world.shown(job)?.contains("before the job"))
    })?;
    ensure!(left(world, job)? > 6 * 24 * 3600, "it is not as long as it may be");
    Ok(())
}

pub(super) fn suspended(world: &mut World) -> Result<()> {
    let script = format!("{}; while [ ! -e on ]; do sleep 0.2; done; {0}; echo done", program());
    let job = world.batch(&["--remote-gpus=1", "--time=1"], &script)?;
    world.expect_printed(job, "works")?;
    let first = world.lease(job)?;
    world.scontrol(&["suspend", &job.to_string()])?;
    within(SOON, "the job is suspended", || Ok(world.state(job)? == "SUSPENDED"))?;
    fs::write(format!("{WORK}/on"), "")?;
    let licences = world.scontrol(&["show", "licenses"])?;
    eprintln!("    {licences}");
    // Its time does not pass, and so it is not to outlive its lease.
    std::thread::sleep(Duration::from_secs(u64::try_from(SLACK)?));
    within(SOON, "the lease lasts for longer", || {
        Ok(seconds(&world.lease(job)?.expires)? > seconds(&first.expires)?)
    })?;
    ensure!(!world.printed(job).contains("done"), "it was not suspended");
    world.scontrol(&["resume", &job.to_string()])?;
    world.expect_printed(job, "done")?;
    world.expect_ended(first.number)
}
