//! Runs a part of this program in namespaces of its own: its processes end with it, and it sees
//! Debian's packages at the usual places of an installation, while nothing is installed.

mod cases;
mod waiting;

use crate::util::{self, step};
use anyhow::{Context, Result, bail};
use cases::Outcome;
pub(crate) use cases::{Case, run, table};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
pub(crate) use waiting::{took, within};

/// A command whose other half, a hidden command `NAME-inside`, runs so.
pub(crate) struct Apart {
    pub(crate) name: &'static str,
    /// What it consists of, for the line that says so.
    pub(crate) what: &'static str,
    /// Seconds after which something stands still.
    pub(crate) limit: u32,
    /// Namespaces besides those of [`NAMESPACES`].
    pub(crate) more: &'static [&'static str],
}

const NAMESPACES: [&str; 6] =
    ["--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// Buries who has died there.
const SHELL: [&str; 3] = ["sh", "-c", "\"$0\" \"$@\"; exit $?"];

impl Apart {
    /// Where it keeps packages, logs and what came of the last run.
    pub(crate) fn folder(&self) -> PathBuf {
        util::target_dir().join(self.name)
    }

    fn report(&self) -> PathBuf {
        self.folder().join("report.json")
    }

    /// Why this machine has no such namespaces, or no file systems over others.
    pub(crate) fn cannot_enter(&self) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("namespaces need root".into());
        }
        let script = "mount -t tmpfs none /run && mkdir /run/u /run/w && \
            mount -t overlay none -o lowerdir=/etc,upperdir=/run/u,workdir=/run/w /etc";
        let mut command = Command::new("unshare");
        command.args(NAMESPACES).args(self.more).args(["sh", "-c", script]).stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Some(format!("a file system over another one is not possible: {said}"))
            }
            Err(error) => Some(format!("`unshare` cannot be started: {error}")),
        }
    }

    /// Runs the other half, which runs cases.
    pub(crate) fn attempt(&self, args: &[String]) -> Result<Vec<Outcome>> {
        fs::create_dir_all(self.folder()).context("cannot make a folder")?;
        let _ = fs::remove_file(self.report());
        step(&format!("{}, in namespaces of their own", self.what));
        // Cargo may have put another program in the place of this one, which then has no path.
        let program = self.folder().join("xtask");
        fs::copy("/proc/self/exe", &program).context("cannot copy this program")?;
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &self.limit.to_string(), "unshare"]);
        command.args(NAMESPACES).args(self.more).args(SHELL).arg(&program);
        command.arg(format!("{}-inside", self.name)).args(args);
        let status = command.status().context("cannot start `timeout`")?;
        let text =
            fs::read(self.report()).with_context(|| format!("no case was run ({status})"))?;
        let outcomes: Vec<Outcome> =
            serde_json::from_slice(&text).context("the report cannot be read")?;
        // One that stands still is stopped, and would otherwise count as if it had no further
        // cases.
        if !status.success() {
            let count = outcomes.len();
            bail!("it was stopped after {count} cases ({status}):\n{}", table(&outcomes));
        }
        Ok(outcomes)
    }

    /// The same, with a table of what came of it; a case that failed is an error.
    pub(crate) fn all_pass(&self, args: &[String]) -> Result<()> {
        let outcomes = self.attempt(args)?;
        util::print(&table(&outcomes))?;
        let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
        if failed > 0 || outcomes.is_empty() {
            let folder = self.folder();
            bail!("{failed} of {} cases failed; logs are in {}", outcomes.len(), folder.display());
        }
        Ok(())
    }
}

/// Inside: puts folders over those of this machine, the first above the others, and memory that
/// takes what is written above all. `/run` is memory afterwards.
pub(crate) fn lay_over(over: &[(&str, &[&Path])]) -> Result<()> {
    let shell = |script: &str| util::run(Command::new("sh").args(["-ec", script]));
    shell("mount -t tmpfs none /run")?;
    for (at, folders) in over {
        let lower = folders.iter().map(|folder| format!("{}:", folder.display()));
        let lower: String = lower.collect();
        shell(&format!(
            "mkdir -p /run/over/{at} /run/in/{at} && mount -t overlay none \
             -o lowerdir={lower}/{at},upperdir=/run/over/{at},workdir=/run/in/{at} /{at}"
        ))?;
    }
    Ok(())
}
