//! `cargo xtask ssh`: OpenSSH's server out of Debian's package, and login shells, for the end-to-end
//! tests of servers that ssh leads to.

use crate::debian;
use crate::test::Count;
use crate::util::{step, target_dir};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;

/// The server, shells, and the libraries of theirs that few other programs need.
const PACKAGES: [&str; 6] =
    ["openssh-server", "libwrap0", "busybox", "fish", "libpcre2-32-0", "tcsh"];

/// The file that says which packages they are.
const LIST: &str = "packages";

/// Lays it out.
pub(crate) fn ensure() -> Result<()> {
    let laid_out = target_dir().join("ssh");
    let list = PACKAGES.join(" ");
    if fs::read_to_string(laid_out.join(LIST)).is_ok_and(|laid_out| laid_out == list) {
        return Ok(());
    }
    step("taking OpenSSH's server and shells out of Debian's packages (3 MB)");
    // What an earlier list had.
    let _ = fs::remove_dir_all(&laid_out);
    debian::whole(&laid_out, |new| {
        debian::unpack(&debian::download(&PACKAGES, new)?, new)?;
        fs::write(new.join(LIST), &list).context("cannot write what is laid out")
    })
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
