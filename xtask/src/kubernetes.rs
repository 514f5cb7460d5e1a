//! `cargo xtask kubernetes`: the driver for dynamic resource allocation, and its tests: against the
//! scheduler's allocator, against the kubelet's protocol, and in a cluster of real programs.

mod cluster;
mod gotests;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::stage::{Dist, Profile};
use crate::test::Count;
use crate::util::{self, root, step};
use crate::{image, programs};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the tests that need no cluster.
    #[arg(long)]
    quick: bool,
    /// With what is laid out in target/dist and target/programs already.
    #[arg(long)]
    staged: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = cannot_run() {
        bail!("{why}");
    }
    let started = Instant::now();
    let dist = if args.staged {
        Dist::laid_out()?
    } else {
        let dist = Dist::build(Profile::Tests)?;
        programs::ensure()?;
        dist
    };
    let mut count = build()?.and(quick_ones(&dist)?);
    if !args.quick {
        let built = Instant::now();
        let folder = cluster::build()?;
        step(&format!("built in {:.0} s", built.elapsed().as_secs_f64()));
        let mut environment = vec![("OUTBOARD_CLUSTER", folder)];
        match image::files()? {
            Ok(files) => environment.push(("OUTBOARD_IMAGES", files)),
            Err(why) => step(&format!("no images: {why}")),
        }
        count = count.and(gotests::run(on_a_node, &dist, &["./e2e"], &environment)?);
    }
    count.skipped.iter().for_each(|why| eprintln!("skipped: {why}"));
    step(&format!("{count} in {:.0} s", started.elapsed().as_secs_f64()));
    if count.failed.is_empty() { Ok(()) } else { bail!("not all is well") }
}

/// A step of `cargo xtask test`: fetches and compiles all that the tests need, and has it checked.
pub(crate) fn build() -> Result<Count> {
    // The tests say that they are skipped.
    if cannot_run().is_some() {
        return Ok(Count::default());
    }
    // The compiler collects garbage less often, which saves a fifth of its time on large packages.
    util::run(go().args(["vet", "./..."]).env("GOGC", "400")).map(|()| Count::ONE)
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
    gotests::run(go, dist, &[".", "./internal/..."], &[])
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

/// The same where this machine is a node: a kubelet's folders, and those that our manifests have on
/// a node, are this command's own.
fn on_a_node() -> Command {
    let script = "mount -t tmpfs none /run; for at in etc opt var/lib; do \
        mkdir -p /run/over/$at /run/in/$at; mount -t overlay none \
        -o lowerdir=/$at,upperdir=/run/over/$at,workdir=/run/in/$at /$at; done; exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", script, "go"]).current_dir(module());
    command
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
