//! The kinds of machines that Outboard is built for besides this one.

use std::path::PathBuf;

use crate::util::target_dir;

/// What is built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parts {
    /// All of an installation.
    All,
    /// The command alone, which is linked with its C library.
    Command,
}

/// A kind of machines.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its name on command lines and of its folder.
    pub(crate) name: &'static str,
    /// Rust's name of it.
    pub(crate) triple: &'static str,
    /// The oldest C library that its machines may have, behind the name.
    pub(crate) oldest: &'static str,
    pub(crate) parts: Parts,
}

/// The oldest version of glibc, and the word for it in a wheel's name.
pub(crate) const OLDEST: (u32, u32) = (2, 17);

pub(crate) const TARGETS: [Target; 4] = [
    Target {
        name: "aarch64",
        triple: "aarch64-unknown-linux-gnu",
        oldest: ".2.17",
        parts: Parts::All,
    },
    Target {
        name: "x86_64",
        triple: "x86_64-unknown-linux-gnu",
        oldest: ".2.17",
        parts: Parts::All,
    },
    Target {
        name: "x86_64-musl",
        triple: "x86_64-unknown-linux-musl",
        oldest: "",
        parts: Parts::Command,
    },
    Target {
        name: "aarch64-musl",
        triple: "aarch64-unknown-linux-musl",
        oldest: "",
        parts: Parts::Command,
    },
];

impl Target {
    /// One by its name.
    pub(crate) fn named(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Where its installation is laid out.
    pub(crate) fn dist(&self) -> PathBuf {
        folder().join(self.name)
    }
}

/// All that has to do with other kinds of machines.
pub(crate) fn folder() -> PathBuf {
    target_dir().join("cross")
}
