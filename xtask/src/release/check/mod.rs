//! `cargo xtask release --check`: installs, uses and removes each file of a release for this
//! machine's processor, on a Debian 13 that is made of Debian's packages and has nothing of the
//! project's: under systemd, in a container that has only its own files. On x86-64, packages for
//! aarch64 as well, emulated ([`arm`]).

mod arm;
mod cases;
mod files;
pub(crate) mod inside;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::apart::Apart;
use crate::image::base;
use crate::machines::PROGRAMS;
use crate::{programs, util};

const APART: Apart = Apart {
    name: "release-check",
    what: "what is released, on systems that have nothing of it",
    limit: 900,
    more: &["--net", "--ipc"],
};

/// The release of Debian's, and what it has besides its essential packages: what installs.
const SYSTEM: &str = "trixie";
const PACKAGES: &str = "dnf,passwd,python3-venv,rpm,systemd,xz-utils";

/// The CUDA program that uses each installation.
const PROGRAM: &str = "attributes";

/// Checks the release in a folder, or says that this machine cannot.
pub(super) fn run(folder: &Path, only: Option<&str>) -> Result<()> {
    if let Some(why) = APART.cannot_enter() {
        return util::print(&format!("skipped: {why}\n"));
    }
    let is_wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    let arm = is_wanted(arm::NAME);
    if !arm || cases::ALL.iter().any(|case| is_wanted(case.name)) {
        own(folder, only)?;
    }
    match arm::cannot_run(folder) {
        _ if !arm => Ok(()),
        Some(why) => util::print(&format!("skipped: {}: {why}\n", arm::NAME)),
        None => arm::run(folder).context(arm::NAME),
    }
}

/// Checks what is for this machine's processor.
fn own(folder: &Path, only: Option<&str>) -> Result<()> {
    programs::only(&[PROGRAM])?;
    std::fs::create_dir_all(APART.folder())?;
    base::make(&system(), SYSTEM, &[format!("--include={PACKAGES}")])?;
    let mut args = vec![format!("--release={}", folder.display())];
    args.extend(only.map(|only| format!("--only={only}")));
    APART.all_pass(&args)
}

/// The name of the file of a release that begins and ends so and is for a processor.
fn file(release: &Path, processor: &str, begin: &str, end: &str) -> Result<String> {
    let words: &[&str] = match processor {
        "x86_64" => &["x86_64", "amd64"],
        _ => &["aarch64", "arm64"],
    };
    let files = std::fs::read_dir(release).context("cannot list the release")?.flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let mut fits = names.filter(|name| name.starts_with(begin) && name.ends_with(end));
    let found = fits.find(|name| words.iter().any(|word| name.contains(word)));
    found.with_context(|| format!("the release has no {begin}…{end} for {processor}"))
}

/// Runs the CUDA program by a command and its flags; `says` runs a line of shell.
fn works(says: impl Fn(&str) -> Result<String>, outboard: &str, flags: &str) -> Result<()> {
    let said = says(&format!("{outboard} run {flags} -- {PROGRAMS}/{PROGRAM}"))?;
    ensure!(said.contains("right"), "the program says {said}");
    Ok(())
}

/// The archive of the system's files.
fn system() -> PathBuf {
    APART.folder().join(format!("{SYSTEM}.tar"))
}
