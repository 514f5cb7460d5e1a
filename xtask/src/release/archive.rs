//! Archives whose bytes depend on nothing but their files.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::source::Source;
use crate::util;

/// Packs a folder by the kind that the archive's name says, with its own name before the names of
/// its files.
pub(super) fn pack(folder: &Path, to: &Path, source: &Source) -> Result<()> {
    let (above, name) =
        folder.parent().zip(folder.file_name()).context("a folder has a name and lies in one")?;
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=u=rwX,go=rX", &format!("--mtime=@{}", source.epoch)]);
    // Without a time of its own; more threads would cut what they compress in other places.
    let gzip = to.extension().is_some_and(|end| end == "tgz");
    let compress = if gzip { "gzip --no-name" } else { "xz --threads=1" };
    tar.args(["--use-compress-program", compress, "--create", "--file"]).arg(to);
    util::run(tar.arg("--directory").arg(above).arg(name).env_remove("XZ_OPT"))
}
