//! `cargo xtask slurm`: Debian's Slurm on this machine, a broker, three servers on the software
//! device, and jobs of all kinds that use them, as docs/pool.md and deploy/slurm say.
//!
//! All of it runs in namespaces of its own ([`inside`]): processes end with it, and it sees Slurm,
//! Outboard and their configuration at the usual places of an installation, while nothing is
//! installed.

mod accounts;
mod cases;
mod daemons;
pub(crate) mod inside;
mod packages;
mod pool;
mod site;
mod world;

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::util::{self, step};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the cases whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// What came of a case.
#[derive(Serialize, Deserialize)]
struct Outcome {
    name: String,
    seconds: f64,
    error: Option<String>,
}

/// The programs that jobs run.
const PROGRAMS: [&str; 2] = ["devices", "endless"];
/// Seconds after which something stands still.
const LIMIT: &str = "400";

/// Where it keeps Slurm, logs and what came of the last run.
fn folder() -> PathBuf {
    util::target_dir().join("slurm")
}

fn report() -> PathBuf {
    folder().join("report.json")
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = cannot_run() {
        return util::print(&format!("skipped: {why}\n"));
    }
    programs::only(&PROGRAMS)?;
    Dist::build(Profile::Dev)?;
    let outcomes = attempt(args.only.as_deref())?;
    util::print(&table(&outcomes))?;
    let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
    if failed > 0 || outcomes.is_empty() {
        bail!("{failed} of {} cases failed; logs are in {}", outcomes.len(), folder().display());
    }
    Ok(())
}

/// How many cases passed and failed, with what is built already; or why none can run here.
pub(crate) fn counts() -> Result<std::result::Result<(u64, u64), String>> {
    if let Some(why) = cannot_run() {
        return Ok(Err(why));
    }
    let outcomes = attempt(None)?;
    eprint!("{}", table(&outcomes));
    let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count() as u64;
    Ok(Ok((outcomes.len() as u64 - failed, failed)))
}

/// Why it cannot run on this machine.
fn cannot_run() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("Slurm's packages are those for x86-64".into());
    }
    if !rustix::process::geteuid().is_root() {
        return Some("jobs of several users, and namespaces, need root".into());
    }
    if let Err(error) = packages::ensure() {
        return Some(format!("Debian's Slurm cannot be had: {error:#}"));
    }
    inside::cannot_enter()
}

/// Runs the cases.
fn attempt(only: Option<&str>) -> Result<Vec<Outcome>> {
    let _ = fs::remove_file(report());
    step("Slurm, a broker and three servers, in namespaces of their own");
    // Cargo may have put another program in the place of this one, which then has no path.
    let program = folder().join("xtask");
    fs::copy("/proc/self/exe", &program).context("cannot copy this program")?;
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", LIMIT]).args(inside::ENTER).arg(&program);
    command.arg("slurm-inside").args(only.map(|only| format!("--only={only}")));
    let status = command.status().context("cannot start `timeout`")?;
    let text = fs::read(report()).with_context(|| format!("no case was run ({status})"))?;
    let outcomes: Vec<Outcome> =
        serde_json::from_slice(&text).context("the report cannot be read")?;
    // One that stands still is stopped, and would otherwise count as if it had no further cases.
    if !status.success() {
        bail!("it was stopped after {} cases ({status}):\n{}", outcomes.len(), table(&outcomes));
    }
    Ok(outcomes)
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for Outcome { name, seconds, error } in outcomes {
        let came = error.as_deref().unwrap_or("passed");
        let _ = writeln!(text, "{name:<48} {seconds:>6.1} s  {came}");
    }
    let sum: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let _ = writeln!(text, "{:<48} {sum:>6.1} s", format!("{} cases", outcomes.len()));
    text
}
