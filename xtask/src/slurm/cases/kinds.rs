//! Kinds of jobs.

use super::so_many;
use crate::apart::within;
use crate::slurm::site::{TRY, WORK};
use crate::slurm::world::{ENDS, SOON, World};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;

/// The program that lists and tries its devices.
pub(super) fn program() -> String {
    TRY.into()
}

pub(super) fn srun(world: &mut World) -> Result<()> {
    so_many(&world.srun(&["--remote-gpus=2", "--remote-gpu-memory=1G", &program()])?, 2)?;
    within(ENDS, "the lease ends", || Ok(world.pool.leases()?.is_empty()))
}

pub(super) fn gres(world: &mut World) -> Result<()> {
    so_many(&world.srun(&["--gres=rgpu:2", &program()])?, 2).map(drop)
}

pub(super) fn sbatch(world: &mut World) -> Result<()> {
    let script = format!("{}; sleep 1", program());
    let job = world.batch(&["--remote-gpus=1", "--time=10", "--account=vision"], &script)?;
    let lease = world.lease(job)?;
    ensure!((lease.owner.as_str(), lease.group.as_str()) == ("ada", "vision"), "{lease:?}");
    let expires = seconds(&lease.expires)?;
    let left = expires - seconds_now()?;
    ensure!((600..=612).contains(&left), "it ends in {left} s, the job in 600 s");
    world.expect_printed(job, "works")?;
    so_many(&world.printed(job), 1)?;
    world.expect_ended(lease.number)
}

pub(super) fn seconds(time: &str) -> Result<i64> {
    let output = std::process::Command::new("date").args(["+%s", "-d", time]).output()?;
    String::from_utf8(output.stdout)?.trim().parse().context("a time")
}

pub(super) fn seconds_now() -> Result<i64> {
    seconds("now")
}

pub(super) fn salloc(world: &mut World) -> Result<()> {
    let output = world.output("ada", "salloc", &["--remote-gpus=1", "srun", &program()])?;
    so_many(&String::from_utf8_lossy(&output.stdout), 1).map(drop)
}

pub(super) fn array(world: &mut World) -> Result<()> {
    // Each waits for the others: all are there at a time.
    let script = format!(
        "{}; touch here.$SLURM_ARRAY_TASK_ID; \
         while [ $(ls here.* | wc -l) -lt 3 ]; do sleep 0.2; done; \
         {0} > devices.$SLURM_ARRAY_TASK_ID; sleep 1",
        program()
    );
    world.batch(&["--remote-gpus=1", "--array=0-2"], &script)?;
    within(SOON, "all tasks have run", || {
        Ok((0..3).all(|task| task_printed(task).is_some_and(|text| text.contains("works"))))
    })?;
    let mut all = BTreeSet::new();
    for task in 0..3 {
        all.extend(so_many(&task_printed(task).unwrap_or_default(), 1)?);
    }
    ensure!(all.len() == 3, "three tasks had {all:?}");
    Ok(())
}

fn task_printed(task: u32) -> Option<String> {
    std::fs::read_to_string(format!("{}/devices.{task}", WORK)).ok()
}

pub(super) fn heterogeneous(world: &mut World) -> Result<()> {
    let program = program();
    let printed =
        world.srun(&["--label", "--remote-gpus=1", &program, ":", "--remote-gpus=2", &program])?;
    let of = |task: &str| -> String {
        let lines = printed.lines().filter(|line| line.starts_with(task));
        lines.collect::<Vec<_>>().join("\n")
    };
    let (first, second) = (so_many(&of("0:"), 1)?, so_many(&of("1:"), 2)?);
    ensure!(first.is_disjoint(&second), "both had {first:?}");
    Ok(())
}

pub(super) fn nodes(world: &mut World) -> Result<()> {
    let script = format!("echo $SLURMD_NODENAME; {}", program());
    let printed = world.srun(&["--nodes=2", "--remote-gpus=2", "sh", "-c", &script])?;
    ensure!(printed.contains("n1\n") && printed.contains("n2\n"), "{printed}");
    so_many(&printed, 2)?;
    ensure!(printed.matches("works").count() == 4, "{printed}");
    Ok(())
}

pub(super) fn steps(world: &mut World) -> Result<()> {
    // Each step waits for the other one.
    let step = |own: &str, other: &str| {
        format!(
            "srun --overlap sh -c 'touch step.{own}; \
             while [ ! -e step.{other} ]; do sleep 0.2; done; {}'",
            program()
        )
    };
    let script = format!("{} & {} & wait; echo both", step("a", "b"), step("b", "a"));
    let job = world.batch(&["--remote-gpus=1"], &script)?;
    world.expect_printed(job, "both")?;
    let printed = world.printed(job);
    so_many(&printed, 1)?;
    ensure!(printed.matches("works").count() == 2, "{printed}");
    Ok(())
}

pub(super) fn without(world: &mut World) -> Result<()> {
    let printed = world.srun(&["env"])?;
    if printed.contains("OUTBOARD") {
        bail!("a job without devices has variables of theirs: {printed}");
    }
    let job = world.batch(&[], "srun --remote-gpus=1 true")?;
    world.expect_printed(job, "a job asks for them, and not a step")
}
