//! Packages of Debian's that are unpacked and not installed.

use crate::util;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Downloads packages into a folder; where they lie.
pub(crate) fn download(packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
    util::run(
        Command::new("apt-get")
            .args(["-qq", "download"])
            .args(packages)
            .current_dir(folder)
            .stderr(Stdio::null()),
    )?;
    let files = fs::read_dir(folder).context("cannot list what was downloaded")?;
    let found: Vec<PathBuf> = files
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .collect();
    if found.len() < packages.len() {
        bail!("apt-get has not left {}", packages.join(", "));
    }
    Ok(found)
}

/// Unpacks packages into a folder and removes them.
pub(crate) fn unpack(packages: &[PathBuf], folder: &Path) -> Result<()> {
    for package in packages {
        util::run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(folder))?;
        fs::remove_file(package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    Ok(())
}

/// Makes a folder by filling a new one beside it, so that it is there whole or not at all.
pub(crate) fn whole(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let new = folder.with_extension("new");
    if new.exists() {
        fs::remove_dir_all(&new).with_context(|| format!("cannot remove {}", new.display()))?;
    }
    fs::create_dir_all(&new).with_context(|| format!("cannot create {}", new.display()))?;
    fill(&new)?;
    fs::rename(&new, folder).with_context(|| format!("cannot name {}", folder.display()))
}
