//! `cargo xtask kubernetes`: the driver for dynamic resource allocation, and its tests: against the
//! scheduler's allocator, against the kubelet's protocol, and in a cluster of real programs.

mod cluster;
mod gotests;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::test::Count;
use crate::util::{self, root, step};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the tests that need no cluster.
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = cannot_run() {
        bail!("{why}");
    }
    let started = Instant::now();
    let dist = Dist::build(Profile::Tests)?;
    programs::ensure()?;
    let mut count = build()?.and(quick_ones(&dist)?);
    if !args.quick {
        let built = Instant::now();
        let folder = cluster::build()?;
        step(&format!("built in {:.0} s", built.elapsed().as_secs_f64()));
        let environment = [("OUTBOARD_CLUSTER", folder)];
        count = count.and(gotests::run(&dist, &["./e2e"], &environment)?);
    }
    count.skipped.iter().for_each(|why| eprintln!("skipped: {why}"));
    step(&format!(
        "{} passed, {} failed, {} skipped in {:.0} s",
        count.passed,
        count.failed,
        count.skipped.len(),
        started.elapsed().as_secs_f64()
    ));
    if count.failed > 0 { bail!("not all is well") } else { Ok(()) }
}

/// A step of `cargo xtask test`: fetches and compiles all that the tests need, and has it checked.
pub(crate) fn build() -> Result<Count> {
    // The tests say that they are skipped.
    if cannot_run().is_some() {
        return Ok(Count::default());
    }
    util::run(go().args(["vet", "./..."])).map(|()| Count::ONE)
}

/// Another step: what needs no cluster, with what is laid out.
pub(crate) fn quick() -> Result<Count> {
    if let Some(why) = cannot_run() {
        return Ok(Count::skipped(why));
    }
    quick_ones(&Dist::laid_out()?)
}

fn quick_ones(dist: &Dist) -> Result<Count> {
    let mut gofmt = Command::new("gofmt");
    gofmt.arg("-l").arg(module());
    let output = gofmt.output().context("cannot start `gofmt`")?;
    if !output.status.success() || !output.stdout.is_empty() {
        bail!("gofmt would change:\n{}", String::from_utf8_lossy(&output.stdout));
    }
    gotests::run(dist, &[".", "./internal/..."], &[])
}

/// Why there is nothing to run the tests with: no Go, or not its modules.
pub(crate) fn cannot_run() -> Option<String> {
    match go().args(["mod", "download"]).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().last().unwrap_or("`go mod download` failed").to_owned();
            Some(format!("kubernetes: its Go modules cannot be had: {last}"))
        }
        Err(error) => Some(format!("kubernetes: there is no Go (1.26 or later): {error}")),
    }
}

/// The folder of the Go module.
fn module() -> PathBuf {
    root().join("kubernetes")
}

fn go() -> Command {
    let mut command = Command::new("go");
    command.current_dir(module());
    command
}
