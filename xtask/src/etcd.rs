//! `cargo xtask etcd`: an etcd for the tests of several brokers, out of Debian's package.

use crate::debian;
use crate::test::Count;
use crate::util::{step, target_dir};
use anyhow::{Context, Result};
use std::fs;

/// Lays out `target/etcd/etcd`, unless it is there.
pub(crate) fn ensure() -> Result<()> {
    let folder = target_dir().join("etcd");
    if folder.join("etcd").exists() {
        return Ok(());
    }
    step("taking etcd out of Debian's package");
    debian::whole(&folder, |new| {
        debian::unpack(&debian::download(&["etcd-server"], new)?, new)?;
        fs::rename(new.join("usr/bin/etcd"), new.join("etcd")).context("the package has etcd")?;
        fs::remove_dir_all(new.join("usr")).context("cannot remove the rest")
    })
}

/// A step of `cargo xtask test`. Without etcd, the tests that need it say that they are skipped.
pub(crate) fn attempt() -> Count {
    match ensure() {
        Ok(()) => Count::ONE,
        Err(error) => Count::skipped(format!("etcd: Debian's package cannot be had: {error:#}")),
    }
}
