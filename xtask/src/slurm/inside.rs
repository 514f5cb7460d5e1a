//! What runs in the namespaces: lays out the machine, starts all that there is, runs the cases.

use super::cases::{self, Case};
use super::world::World;
use super::{Outcome, folder, packages, report};
use crate::programs;
use crate::util::{self, step};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Starts a command in namespaces that end with it, below a shell that buries who has died there.
pub(super) const ENTER: [&str; 10] = [
    "unshare",
    "--uts",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
    "\"$0\" \"$@\"; exit $?",
];

/// Where jobs find the test programs.
pub(super) const PROGRAMS: &str = "/mnt";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    only: Option<String>,
}

/// Why this machine has no such namespaces, or no file systems over others.
pub(super) fn cannot_enter() -> Option<String> {
    let script = "mount -t tmpfs none /run && mkdir /run/u /run/w && \
        mount -t overlay none -o lowerdir=/etc,upperdir=/run/u,workdir=/run/w /etc";
    let mut command = Command::new(ENTER[0]);
    command.args(&ENTER[1..7]).args(["sh", "-c", script]).stdin(Stdio::null());
    match command.output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Some(format!("a file system over another one is not possible: {said}"))
        }
        Err(error) => Some(format!("`unshare` cannot be started: {error}")),
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    lay_out()?;
    let mut world = World::start()?;
    let wanted = |case: &&Case| args.only.as_ref().is_none_or(|only| case.name.contains(only));
    let mut outcomes = Vec::new();
    for case in cases::ALL.iter().filter(wanted) {
        step(case.name);
        let begin = Instant::now();
        let error = world.attempt(case.run).err().map(|error| format!("{error:#}"));
        if let Some(error) = &error {
            eprintln!("error: {error}");
        }
        let seconds = begin.elapsed().as_secs_f64();
        outcomes.push(Outcome { name: case.name.into(), seconds, error });
        // A run that is stopped tells what it has found.
        fs::write(report(), serde_json::to_vec(&outcomes)?).context("cannot write the report")?;
    }
    Ok(())
}

/// Puts Slurm and Outboard over this machine's files, and folders of their own over others.
fn lay_out() -> Result<()> {
    let shell = |script: &str| util::run(Command::new("sh").args(["-ec", script]));
    let dist = util::target_dir().join("dist");
    let path = |path: &Path| path.display().to_string();
    shell(
        "mount -t tmpfs none /run && mkdir -p /run/over/etc /run/over/usr /run/in/etc /run/in/usr",
    )?;
    for (over, lower) in [
        ("etc", "/etc".to_owned()),
        ("usr", format!("{}:{}/usr:/usr", path(&dist), path(&packages::dir()))),
    ] {
        shell(&format!(
            "mount -t overlay none \
             -o lowerdir={lower},upperdir=/run/over/{over},workdir=/run/in/{over} /{over}"
        ))?;
    }
    shell(&format!("mount --bind '{}' {PROGRAMS}", path(&programs::dir())))?;
    shell(&format!("hostname {}", super::site::HOST))?;
    fs::create_dir_all(folder().join("logs")).context("cannot make a folder for logs")
}
