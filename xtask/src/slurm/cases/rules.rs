//! What is refused, who waits, who may see what.

use super::kinds::program;
use crate::apart::within;
use crate::slurm::accounts::{ACCOUNT, WEIGHT};
use crate::slurm::inside::PROGRAMS;
use crate::slurm::site::node_token;
use crate::slurm::world::{ENDS, SOON, World};
use anyhow::{Result, bail, ensure};
use std::time::{Duration, Instant};

pub(super) fn refusals(world: &mut World) -> Result<()> {
    for (flags, sentence) in [
        (&["--remote-gpus=two"][..], "write how many"),
        (&["--remote-gpus=0"], "write how many"),
        (&["--remote-gpus=1", "--remote-gpu-memory=much"], "write a size"),
        (&["--remote-gpu-memory=1G"], "goes with --remote-gpus"),
        (&["--remote-gpus=1", "--gres=rgpu:2"], "several numbers"),
        (&["--nodes=2", "--gres=rgpu:1"], "counts for each node"),
        (&["--remote-gpus=4"], "Invalid license"),
    ] {
        let args = [flags, &["true"]].concat();
        let said = world.refused("srun", &args)?;
        ensure!(said.contains(sentence), "`srun {}`: {said}", flags.join(" "));
    }
    Ok(())
}

pub(super) fn unknown_memory(world: &mut World) -> Result<()> {
    let said = world.refused("srun", &["--remote-gpus=1", "--remote-gpu-memory=900T", "true"])?;
    ensure!(said.contains("has no remote GPUs") && said.contains("900 TiB"), "{said}");
    Ok(())
}

pub(super) fn full(world: &mut World) -> Result<()> {
    let script = format!("{}; sleep 3; echo done", program());
    let first = world.batch(&["--remote-gpus=2"], &script)?;
    let one = world.lease(first)?;
    let second = world.batch(&["--remote-gpus=2"], &script)?;
    within(SOON, "the second job waits for licences", || {
        Ok(world.shown(second)?.contains("Reason=Licenses"))
    })?;
    // Two of three devices, twice: one of them was the first job's.
    let begin = Instant::now();
    while !world.printed(second).contains("done") {
        let twice = world.pool.twice()?;
        ensure!(twice.is_empty(), "two leases have {twice:?}");
        if begin.elapsed() > Duration::from_secs(60) {
            bail!("the second job has not run: {}", world.shown(second)?);
        }
    }
    world.expect_printed(first, "done")?;
    world.expect_ended(one.number)
}

pub(super) fn visible(world: &mut World) -> Result<()> {
    let job = world.batch(&["--remote-gpus=2"], "sleep 20")?;
    let lease = world.lease(job)?;
    let shown = world.shown(job)?;
    ensure!(shown.contains("Licenses=rgpu:2"), "{shown}");
    let device = lease.devices.iter().next().cloned().unwrap_or_default();
    within(SOON, "the job's comment names its devices", || {
        Ok(world.shown(job)?.contains(&device))
    })?;
    let licences = world.scontrol(&["show", "licenses"])?;
    ensure!(licences.contains("Used=2 Free=1"), "{licences}");
    Ok(())
}

pub(super) fn accounted(world: &mut World) -> Result<()> {
    let by_option = world.batch(&["--remote-gpus=2", "--account", ACCOUNT], &program())?;
    let by_gres = world.batch(&["--gres=rgpu:1", "--account", ACCOUNT], &program())?;
    for (job, parts) in
        [(by_option, &["license/rgpu=2"][..]), (by_gres, &["license/rgpu=1", "gres/rgpu=1"])]
    {
        let number = job.to_string();
        let args =
            ["--noheader", "--parsable2", "--allocations", "--format=Account,State,AllocTRES"];
        let mut said = String::new();
        let seen = within(SOON, "", || {
            let output =
                world.output("ada", "sacct", &[&args[..], &["--jobs", &number]].concat())?;
            said = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(said.starts_with(&format!("{ACCOUNT}|COMPLETED|")))
        });
        ensure!(seen.is_ok() && parts.iter().all(|part| said.contains(part)), "job {job}: {said}");
        // By this fair share weighs what a job has had.
        let mut words = said.trim().split([',', '|']);
        let billing = words.find_map(|word| word.strip_prefix("billing=")?.parse::<u32>().ok());
        ensure!(billing.is_some_and(|billing| billing >= WEIGHT), "job {job}: {said}");
    }
    Ok(())
}

pub(super) fn secrets(world: &mut World) -> Result<()> {
    let job = world.batch(&["--remote-gpus=1"], &format!("env; {PROGRAMS}/endless"))?;
    world.used_lease(job)?;
    let environment = world.printed(job);
    let variable = |name: &str| {
        let mut lines = environment.lines().filter_map(|line| line.split_once('='));
        lines.find(|(of, _)| *of == name).map_or(String::new(), |(_, value)| value.to_owned())
    };
    let (key, lease) = (variable("OUTBOARD_LEASE_KEY"), variable("OUTBOARD_LEASE"));
    ensure!(std::path::Path::new(&key).is_file(), "no key: {environment}");
    for secret in [&key, &lease] {
        ensure!(world.output("ada", "cat", &[secret])?.status.success(), "Ada reads {secret}");
        ensure!(!world.output("bob", "cat", &[secret])?.status.success(), "Bob reads {secret}");
    }
    let [token, settings] = ["token", "env"].map(|name| format!("/etc/outboard/slurm.{name}"));
    for path in [token, settings, node_token("n1")] {
        ensure!(!world.output("ada", "cat", &[&path])?.status.success(), "Ada reads {path}");
    }
    // What the job has is no token: she can ask the broker nothing as Slurm.
    let fingerprint = &world.pool.fingerprint;
    let flags = ["--pool", &world.pool.url, "--pool-fingerprint", fingerprint];
    let with = |token: &str| {
        let args = [&["pool", "--pool-token-file", token], &flags[..], &["leases"]].concat();
        world.refused("outboard", &args)
    };
    let said = with(&lease)?;
    ensure!(said.contains("OB1004") || said.contains("OB1001"), "{said}");
    let said = with("/etc/outboard/slurm.token")?;
    ensure!(said.contains("Permission denied"), "{said}");
    world.scontrol(&["show", "job", &job.to_string()])?;
    world.output("ada", "scancel", &[&job.to_string()])?;
    within(ENDS, "the key goes with the job", || Ok(!std::path::Path::new(&key).exists()))
}
