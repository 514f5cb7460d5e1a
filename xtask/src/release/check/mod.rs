//! `cargo xtask release --check`: installs, uses and removes each file of a release for this
//! machine's processor, on a Debian 13 that is made of Debian's packages and has nothing of the
//! project's: under systemd, in a container that has only its own files.

mod cases;
mod files;
pub(crate) mod inside;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::apart::Apart;
use crate::image::base;
use crate::{programs, util};

const APART: Apart = Apart {
    name: "release-check",
    what: "what is released, on systems that have nothing of it",
    limit: 900,
    more: &["--net", "--ipc"],
};

/// The release of Debian's, and what it has besides its essential packages: what installs.
const SYSTEM: &str = "trixie";
const PACKAGES: &str = "passwd,python3-venv,rpm,systemd,xz-utils";

/// The CUDA program that uses each installation.
const PROGRAM: &str = "attributes";

/// Checks the release in a folder, or says that this machine cannot.
pub(super) fn run(folder: &Path, only: Option<&str>) -> Result<()> {
    if let Some(why) = APART.cannot_enter() {
        return util::print(&format!("skipped: {why}\n"));
    }
    programs::only(&[PROGRAM])?;
    std::fs::create_dir_all(APART.folder())?;
    base::make(&system(), SYSTEM, &[format!("--include={PACKAGES}")])?;
    let mut args = vec![format!("--release={}", folder.display())];
    args.extend(only.map(|only| format!("--only={only}")));
    APART.all_pass(&args)
}

/// The archive of the system's files.
fn system() -> PathBuf {
    APART.folder().join(format!("{SYSTEM}.tar"))
}
