//! Debian's Slurm, unpacked.

use crate::debian;
use crate::util::step;
use anyhow::{Context, Result};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Slurm with its accounts and their database, and those libraries that are on few machines.
const PACKAGES: [&str; 18] = [
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-basic-plugins-dev",
    "libslurm38",
    "libslurm-dev",
    "libhwloc15",
    "liblua5.1-0",
    "libmunge2",
    "munge",
    "slurmdbd",
    "slurm-wlm-mysql-plugin",
    "mariadb-server-core",
    "libmariadb3",
    "libaio1",
    "libnuma1",
    "liburing2",
];
/// Debian gives them other names, and they know by their name what they are.
const PLAIN: [&str; 3] = ["slurmctld", "slurmd", "slurmstepd"];

/// The folder with `usr`.
pub(super) fn dir() -> PathBuf {
    super::folder().join("debian")
}

/// Gets Slurm if it is not there.
pub(super) fn ensure() -> Result<()> {
    if dir().exists() {
        return Ok(());
    }
    step("getting Debian's Slurm and MariaDB (20 MB), which are not installed");
    debian::whole(&dir(), |new| {
        debian::unpack(&debian::download(&PACKAGES, new)?, new)?;
        for name in PLAIN {
            symlink(format!("{name}-wlm"), new.join("usr/sbin").join(name))
                .with_context(|| format!("cannot link {name}"))?;
        }
        Ok(())
    })
}
