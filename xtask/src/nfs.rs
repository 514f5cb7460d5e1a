//! `cargo xtask nfs`: tests of files that client and server both have by NFS, in an emulated
//! machine: its kernel serves a folder, and mounts it twice.

pub(crate) mod inside;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::debian;
use crate::test::built;
use crate::util::{self, step};
use crate::vm::Machine;

/// What starts the kernel's NFS server and mounts what it serves, and what these need.
const PACKAGES: [&str; 7] = [
    "nfs-kernel-server",
    "nfs-common",
    "libnfsidmap1",
    "libevent-core-2.1-7",
    "libtirpc3",
    "libwrap0",
    "libdevmapper1.02.1",
];

#[derive(clap::Args)]
pub(crate) struct Args {}

/// What this program runs as inside the machine.
const INSIDE: &str = "nfs-inside";

/// The folder with the packages' files.
fn packages() -> PathBuf {
    util::target_dir().join("nfs/packages")
}

pub(crate) fn run(_: &Args) -> Result<()> {
    if !packages().exists() {
        step("taking the tools of NFS out of Debian's packages");
        debian::whole(&packages(), |new| debian::unpack(&debian::download(&PACKAGES, new)?, new))?;
    }
    step("building the tests");
    let programs = built(&["--package", "outboard-e2e", "--test", "all"])?;
    let program = programs.first().context("no test was built")?.display().to_string();
    let command = [std::env::current_exe()?.display().to_string(), INSIDE.to_owned(), program];
    match (Machine { memory: 4096, limit: 900, ..Machine::default() }).run(&command)? {
        0 => Ok(()),
        status => bail!("the tests of NFS failed in the machine (status {status})"),
    }
}
