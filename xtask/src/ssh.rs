//! `cargo xtask ssh`: OpenSSH's server out of Debian's package, for the end-to-end tests of servers
//! that ssh leads to.

use crate::debian;
use crate::test::Count;
use crate::util::{step, target_dir};
use anyhow::Result;
use std::path::PathBuf;

/// The server, and the library of its that few other programs need.
const PACKAGES: [&str; 2] = ["openssh-server", "libwrap0"];

/// Lays it out.
pub(crate) fn ensure() -> Result<()> {
    let laid_out = target_dir().join("ssh");
    if laid_out.exists() {
        return Ok(());
    }
    step("taking OpenSSH's server out of Debian's packages (0.5 MB)");
    debian::whole(&laid_out, |new| debian::unpack(&debian::download(&PACKAGES, new)?, new))
}

/// The program that plays a machine with this server, if both are there.
pub(crate) fn machine() -> Option<PathBuf> {
    let program = target_dir().join("debug/outboard-sshd");
    (target_dir().join("ssh").exists() && program.exists()).then_some(program)
}

/// A step of `cargo xtask test`. Without it, the tests that need it say that they are skipped.
pub(crate) fn attempt() -> Result<Count> {
    match ensure() {
        Ok(()) => Ok(Count::ONE),
        Err(error) => {
            Ok(Count::skipped(format!("ssh: Debian's packages cannot be had: {error:#}")))
        }
    }
}
