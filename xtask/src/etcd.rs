//! `cargo xtask etcd`: an etcd for the tests of several brokers, out of Debian's package.

use anyhow::Result;

use crate::debian;
use crate::test::Count;

const PACKAGE: &str = "etcd-server";

/// Lays out `target/etcd/etcd`, unless it is there.
pub(crate) fn ensure() -> Result<()> {
    debian::take_program("etcd", PACKAGE)
}

/// The same, as a step of `cargo xtask test`.
pub(crate) fn attempt() -> Count {
    debian::attempt_program("etcd", PACKAGE)
}
