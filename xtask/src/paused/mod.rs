//! `cargo xtask paused`: emulated machines that are paused for a minute while a program in them
//! uses a server on this one.

pub(crate) mod inside;

use anyhow::{Result, bail};

use crate::apart::Apart;
use crate::programs;
use crate::stage::{Dist, Profile};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the cases whose names contain this.
    #[arg(long)]
    only: Option<String>,
}

/// The program that runs in the machine: it compares what it reads in each of its rounds.
const PROGRAM: &str = "endless";

const APART: Apart = Apart {
    name: "paused",
    what: "machines that are paused for a minute",
    limit: 1200,
    more: &["--net"],
};

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(why) = APART.cannot_enter() {
        bail!("{why}");
    }
    programs::only(&[PROGRAM])?;
    Dist::build(Profile::Dev)?;
    let only = args.only.as_ref().map(|only| format!("--only={only}"));
    APART.all_pass(&Vec::from_iter(only))
}
