//! What happens in the machine: the kernel gets its TLS, and the tests run.

use std::process::Command;

use anyhow::{Context, Result};

use crate::util::run;
use crate::vm::run_every_test;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Programs of tests, each behind the part of its tests that is run: `tls::=FILE`.
    programs: Vec<String>,
}

pub(crate) fn run_all(args: &Args) -> Result<()> {
    run(Command::new("modprobe").arg("tls"))?;
    let mut failed = None;
    for program in &args.programs {
        let (part, program) = program.split_once('=').context("a part and a program")?;
        let mut command = Command::new(program);
        // Emulated processors are slow: tests side by side would wait too long for each other.
        command.args(["--test-threads", "1", "--nocapture"]).env("OUTBOARD_TEST_DRIVER", "cpu");
        command.arg(part);
        failed = failed.or(run_every_test(&mut command).err());
    }
    failed.map_or(Ok(()), Err)
}
