//! What packs and describes a release, built from Go's and Rust's registries, pinned.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::util::{self, step};

/// A program that is built when it is needed.
pub(super) struct Tool {
    name: &'static str,
    version: &'static str,
    from: From,
}

enum From {
    /// The package of a Go module.
    Go(&'static str),
    Crate,
}

/// Makes packages of distributions. Modules that later releases need are not on every mirror of
/// Go's modules.
pub(super) const NFPM: Tool = Tool {
    name: "nfpm",
    version: "2.45.0",
    from: From::Go("github.com/goreleaser/nfpm/v2/cmd/nfpm"),
};
pub(super) const HELM: Tool =
    Tool { name: "helm", version: "3.22.0", from: From::Go("helm.sh/helm/v3/cmd/helm") };
/// Lists what a Rust program consists of.
pub(super) const CYCLONEDX: Tool =
    Tool { name: "cargo-cyclonedx", version: "0.5.9", from: From::Crate };

impl Tool {
    /// The program, which is built if it is not there.
    pub(super) fn command(&self) -> Result<Command> {
        let folder = self.folder();
        let program = folder.join("bin").join(self.name);
        if !program.exists() {
            step(&format!("building {} {} (minutes, once)", self.name, self.version));
            let mut build = match self.from {
                From::Go(package) => {
                    let mut go = Command::new("go");
                    go.args(["install", &format!("{package}@v{}", self.version)]);
                    go.env("GOBIN", folder.join("bin")).env("CGO_ENABLED", "0");
                    go
                }
                From::Crate => {
                    let mut cargo = util::cargo();
                    cargo.args(["install", "--locked", "--quiet", "--root"]).arg(&folder);
                    cargo.args([self.name, "--version", self.version]);
                    cargo
                }
            };
            util::run(build.current_dir(util::target_dir()))
                .with_context(|| format!("{} cannot be built", self.name))?;
        }
        Ok(Command::new(program))
    }

    fn folder(&self) -> PathBuf {
        util::target_dir().join("release-tools").join(format!("{}-{}", self.name, self.version))
    }
}
