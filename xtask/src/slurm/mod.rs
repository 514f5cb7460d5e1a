//! `cargo xtask slurm`: Debian's Slurm on this machine, a broker, three servers on the software
//! device, and jobs of all kinds that use them, as docs/slurm.md and deploy/slurm say.
//!
//! All of it runs in namespaces of its own ([`inside`]): processes end with it, and it sees Slurm,
//! Outboard and their configuration at the usual places of an installation, while nothing is
//! installed.

mod accounts;
mod cases;
mod daemons;
pub(crate) mod inside;
mod munge;
mod packages;
mod pool;
mod site;
mod world;

use crate::apart::{Apart, table};
use crate::programs;
use crate::stage::{Dist, Profile};
use crate::test::{Attempt, Count, judge};
use crate::util;
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the cases whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// The programs that jobs run.
const PROGRAMS: [&str; 2] = ["devices", "endless"];

const APART: Apart =
    Apart { name: "slurm", what: "Slurm, a broker and three servers", limit: 400, more: &[] };

/// Where it keeps Slurm and logs.
fn folder() -> PathBuf {
    APART.folder()
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = cannot_run() {
        return util::print(&format!("skipped: {why}\n"));
    }
    programs::only(&PROGRAMS)?;
    Dist::build(Profile::Dev)?;
    let only = args.only.as_ref().map(|only| format!("--only={only}"));
    APART.all_pass(&Vec::from_iter(only))
}

/// Runs them all with what is built already.
pub(crate) fn tests() -> Result<Count> {
    if let Some(why) = cannot_run() {
        return Ok(Count::skipped(format!("slurm: {why}")));
    }
    let (count, _) = attempt(&[])?;
    Ok(judge(count, |failure| Attempt::of(attempt(&[format!("--only={}", failure.test)]))))
}

/// Runs cases and shows what came of them, in a table.
fn attempt(args: &[String]) -> Result<(Count, String)> {
    let outcomes = APART.attempt(args)?;
    let table = table(&outcomes);
    eprint!("{table}");
    let counts = outcomes.iter().map(|outcome| outcome.count(APART.name));
    Ok((counts.fold(Count::default(), Count::and), table))
}

/// Why it cannot run on this machine.
fn cannot_run() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("Slurm's packages are those for x86-64".into());
    }
    if let Some(why) = APART.cannot_enter() {
        return Some(why);
    }
    let error = packages::ensure().err()?;
    Some(format!("Debian's Slurm cannot be had: {error:#}"))
}
