//! `cargo xtask soak`: a server that is used in every way for a while, and what it and those who
//! use it hold of memory, descriptors and threads.

use crate::programs;
use crate::stage::{Dist, Profile};
use crate::util::{self, root};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// For how long.
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Use an optimised build.
    #[arg(long)]
    release: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    programs::ensure()?;
    Dist::build(Profile::of(args.release))?;
    let mut command = util::cargo();
    command
        .current_dir(root())
        .args([
            "test",
            "--quiet",
            "--package",
            "outboard-e2e",
            "--test",
            "all",
            "--",
            "soak::",
            "--nocapture",
        ])
        .env("OUTBOARD_SOAK_SECONDS", (args.minutes * 60).to_string());
    util::run(&mut command)
}
