//! What takes the place of the registry's images on which the recipe builds: Debian's essential
//! packages and apt, without manuals, as Debian's own image for containers has them.

use super::{APART, packages};
use crate::machines::Emulation;
use crate::util::{self, root, step};
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's own image leaves out manuals, too.
const WITHOUT: [&str; 4] = [
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*/LC_MESSAGES/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
];

/// The archive of its files.
pub(super) fn archive() -> PathBuf {
    APART.folder().join("base.tar")
}

/// The same with systemd: a whole machine.
pub(super) fn with_systemd() -> PathBuf {
    APART.folder().join("systemd.tar")
}

/// Makes both if they are not there.
pub(super) fn ensure() -> Result<()> {
    let name = argument("BASE")?;
    let release = name.rsplit(':').next().and_then(|tag| tag.split('-').next());
    let release = release.context("the recipe's base is a release of Debian")?;
    let options = WITHOUT.map(|option| format!("--dpkgopt={option}"));
    make(&archive(), release, &options)?;
    make(&with_systemd(), release, &[&options[..], &["--include=systemd".into()]].concat())
}

/// Makes the archive of a system's files, unless it is there, with some options of mmdebstrap's.
pub(crate) fn make(archive: &Path, release: &str, options: &[String]) -> Result<()> {
    // What it mounts is gone with it.
    let mut apart = Command::new("unshare");
    apart.arg("--mount");
    make_by(apart, archive, release, options)
}

/// The same of a system for aarch64.
pub(crate) fn make_emulated(
    emulation: &Emulation,
    archive: &Path,
    release: &str,
    options: &[String],
) -> Result<()> {
    // It would ask a program of another package whether this machine can run what it installs.
    let foreign = ["--architectures=arm64", "--skip=check/qemu"].map(str::to_owned);
    make_by(emulation.command(), archive, release, &[&foreign[..], options].concat())
}

/// The same by a command that runs its arguments apart from this machine.
fn make_by(mut command: Command, archive: &Path, release: &str, options: &[String]) -> Result<()> {
    if archive.exists() {
        return Ok(());
    }
    packages::ensure()?;
    step(&format!("making {} of Debian's packages ({release})", archive.display()));
    let new = archive.with_extension("new.tar");
    let mut paths = OsString::from(packages::dir().join("usr/bin"));
    paths.push(":");
    paths.push(std::env::var_os("PATH").unwrap_or_default());
    command.arg("perl").arg(packages::dir().join("usr/bin/mmdebstrap"));
    command.args(["--quiet", "--mode=root", "--variant=apt"]).env("PATH", paths);
    util::run(command.args(options).arg(release).arg(&new))?;
    fs::rename(new, archive).context("cannot name what was made")
}

/// The value that the recipe gives an argument unless another one is said.
pub(super) fn argument(name: &str) -> Result<String> {
    let file = root().join("deploy/container/Containerfile");
    let recipe = fs::read_to_string(file).context("there is the recipe")?;
    let value = recipe.lines().find_map(|line| line.strip_prefix(&format!("ARG {name}=")));
    Ok(value.with_context(|| format!("the recipe has no argument {name}"))?.trim().to_owned())
}
