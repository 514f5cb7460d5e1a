//! Debian's podman, unpacked, and what makes a base.

use super::APART;
use crate::debian;
use crate::util::step;
use anyhow::Result;
use std::path::PathBuf;

/// podman, and those of its libraries and settings that are on few machines.
const PACKAGES: [&str; 9] = [
    "podman",
    "crun",
    "conmon",
    "golang-github-containers-common",
    "golang-github-containers-image",
    "libgpgme11",
    "libsubid4",
    "libyajl2",
    "mmdebstrap",
];

/// The folder with `etc` and `usr`.
pub(super) fn dir() -> PathBuf {
    APART.folder().join("debian")
}

/// Gets them if they are not there.
pub(super) fn ensure() -> Result<()> {
    if dir().exists() {
        return Ok(());
    }
    step("getting Debian's podman and mmdebstrap (12 MB), which are not installed");
    debian::whole(&dir(), |new| debian::unpack(&debian::download(&PACKAGES, new)?, new))
}
