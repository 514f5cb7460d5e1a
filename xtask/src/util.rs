//! What several commands share: where things are, and running other programs.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// Cargo's target directory (`CARGO_TARGET_DIR` is honoured).
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Runs a command with its output shown; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Installs Debian packages, as root or by `sudo` where that asks nothing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    step(&format!("installing {}", packages.join(", ")));
    let command = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    if update_packages().is_err() || !as_root(&command) {
        bail!("{0} cannot be installed by itself; install with:\n    sudo apt-get install -y {0}", packages.join(" "));
    }
    Ok(())
}

/// Fetches apt's lists of packages.
pub(crate) fn update_packages() -> Result<()> {
    if !as_root(&["update"]) {
        bail!("apt's lists of packages cannot be fetched; fetch them with:\n    sudo apt-get update");
    }
    Ok(())
}

fn as_root(apt: &[&str]) -> bool {
    let works = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).args(apt).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
        command.stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    works("apt-get", &[]) || works("sudo", &["--non-interactive", "apt-get"])
}

/// A command as one would type it.
pub(crate) fn show(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        text.push(' ');
        text.push_str(&arg.to_string_lossy());
    }
    text
}

/// One line of progress.
pub(crate) fn step(text: &str) {
    eprintln!("==> {text}");
}

/// Writes what a command is for to standard output; progress goes to standard error.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to standard output")
}
