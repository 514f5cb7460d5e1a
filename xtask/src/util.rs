//! What several commands share: where things are, and running other programs.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .to_path_buf()
}

/// Cargo's target directory (`CARGO_TARGET_DIR` is honoured).
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Cargo, without what the cargo that runs this program says of it: build scripts look at that, and
/// would run again, with all that is above them, whenever cargo is called here after it was called
/// by hand.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env!("CARGO"));
    let of_this_program =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    std::env::vars()
        .filter(|(name, _)| of_this_program(name))
        .for_each(|(name, _)| _ = command.env_remove(name));
    command
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

/// What a command prints.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start `{}`", show(command)))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("`{}` failed ({}): {}", show(command), output.status, error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Installs Debian packages, as root or by `sudo` where that asks nothing.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    step(&format!("installing {}", packages.join(", ")));
    let command = [&["install", "--yes", "--no-install-recommends"], packages].concat();
    if update_packages().is_err() || !as_root(&command) {
        bail!(
            "{0} cannot be installed by itself; install with:\n    sudo apt-get install -y {0}",
            packages.join(" ")
        );
    }
    Ok(())
}

/// Fetches apt's lists of packages.
pub(crate) fn update_packages() -> Result<()> {
    if !as_root(&["update"]) {
        bail!(
            "apt's lists of packages cannot be fetched; fetch them with:\n    sudo apt-get update"
        );
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

/// Does the work for each item, so many at a time. Where it fails for some, the others are still
/// done.
pub(crate) fn for_each<T: Sync>(
    items: &[T],
    at_once: usize,
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = work(item) {
                        failures
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(format!("{error:#}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
}

/// How many programs that compute are best run at once.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
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
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_does_not_hear_of_this_program() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
        let command = cargo();
        let mut removed =
            command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name);
        assert!(removed.any(|name| name == "CARGO_PKG_NAME"));
    }

    #[test]
    fn all_is_done_and_all_that_fails_is_told() {
        let done = AtomicUsize::new(0);
        let work = |number: &usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if number.is_multiple_of(4) { bail!("{number} fails") } else { Ok(()) }
        };
        let error = for_each(&[1, 2, 4, 5, 7, 8, 9], 2, work).unwrap_err().to_string();
        let mut told: Vec<&str> = error.lines().collect();
        told.sort_unstable();
        assert_eq!((done.into_inner(), told), (7, vec!["4 fails", "8 fails"]));
        assert!(for_each(&[1, 2, 3], 8, |_| Ok(())).is_ok());
    }
}
