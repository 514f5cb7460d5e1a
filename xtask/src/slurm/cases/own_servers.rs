//! Jobs that start servers themselves, as docs/mpi.md says.

use crate::apart::within;
use crate::slurm::inside::PROGRAMS;
use crate::slurm::site::WORK;
use crate::slurm::world::{SOON, World};
use anyhow::{Result, ensure};

/// A server on each of two nodes, and ranks that use them.
fn script(program: &str) -> String {
    format!(
        "meeting=$PWD/meeting-$SLURM_JOB_ID; \
         srun --overlap --ntasks=2 --ntasks-per-node=1 outboard serve --driver cpu --warm 0 --once \
         --once-after 2 --rendezvous $meeting --rendezvous-address 127.0.0.1 & \
         srun --overlap --ntasks=4 outboard run --server @$meeting:wait:by-rank -- {program}; \
         wait; echo all have ended"
    )
}

/// How many servers of a job are there.
fn there(job: u32) -> usize {
    std::fs::read_dir(format!("{WORK}/meeting-{job}")).map_or(0, Iterator::count)
}

pub(super) fn used(world: &mut World) -> Result<()> {
    let program = format!("{PROGRAMS}/devices");
    let job = world.batch(&["--nodes=2", "--ntasks=4"], &script(&program))?;
    world.expect_printed(job, "all have ended")?;
    let printed = world.printed(job);
    let worked = printed.matches("works").count();
    ensure!((worked, printed.matches("1 devices").count()) == (4, 4), "{printed}");
    ensure!(there(job) == 0, "{} servers are left", there(job));
    Ok(())
}

pub(super) fn cancelled(world: &mut World) -> Result<()> {
    let job = world.batch(&["--nodes=2", "--ntasks=4"], &script("sh -c 'echo runs; sleep 300'"))?;
    world.expect_printed(job, "runs")?;
    ensure!(there(job) == 2, "{} servers are there", there(job));
    world.output("ada", "scancel", &[&job.to_string()])?;
    within(SOON, "the servers have ended", || Ok(there(job) == 0))
}
