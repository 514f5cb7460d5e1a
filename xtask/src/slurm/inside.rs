//! What runs in the namespaces: lays out the machine, starts all that there is, runs the cases.

use super::world::World;
use super::{APART, cases, folder, packages};
use crate::util;
use crate::{apart, programs};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Where jobs find the test programs.
pub(super) const PROGRAMS: &str = "/mnt";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    lay_out()?;
    let mut world = World::start()?;
    apart::run(&APART, cases::ALL, args.only.as_deref(), |run| world.attempt(run))
}

/// Puts Slurm and Outboard over this machine's files, and folders of their own over others.
fn lay_out() -> Result<()> {
    let (dist, slurm) = (util::target_dir().join("dist"), packages::dir().join("usr"));
    apart::lay_over(&[("etc", &[]), ("usr", &[&dist, &slurm])])?;
    let shell = |script: &str| util::run(Command::new("sh").args(["-ec", script]));
    shell(&format!("mount --bind '{}' {PROGRAMS}", programs::dir().display()))?;
    shell(&format!("hostname {}", super::site::HOST))?;
    let logs = folder().join("logs");
    fs::create_dir_all(&logs).context("cannot make a folder for logs")?;
    // Daemons of several users write there.
    fs::set_permissions(logs, fs::Permissions::from_mode(0o1777))?;
    Ok(())
}
