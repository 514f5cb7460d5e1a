//! rdma-core, and UCX to compare with, out of Debian's packages, unpacked.

use crate::debian;
use crate::util::{self, step};
use anyhow::Result;
use std::path::PathBuf;

/// The library of verbs with its drivers, its headers, programs that measure, and what these need.
const PACKAGES: [&str; 14] = [
    "libibverbs1",
    "ibverbs-providers",
    "libibverbs-dev",
    "rdma-core",
    "perftest",
    "librdmacm1",
    "libibumad3",
    "libpci3",
    "libnl-3-200",
    "libnl-route-3-200",
    "libucx0",
    "ucx-utils",
    "libnuma1",
    "libgomp1",
];

/// The folder with `usr` and `etc`.
pub(super) fn dir() -> PathBuf {
    util::target_dir().join("rdma/packages")
}

pub(super) fn ensure() -> Result<()> {
    if dir().exists() {
        return Ok(());
    }
    step("taking rdma-core and UCX out of Debian's packages (4 MB)");
    debian::whole(&dir(), |new| debian::unpack(&debian::download(&PACKAGES, new)?, new))
}
