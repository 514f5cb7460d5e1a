//! A copy of a commit in which faults are planted, with a target folder of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::test::{self, Program};
use crate::util::{self, root};

pub(super) struct Tree {
    source: PathBuf,
    target: PathBuf,
    /// How many compilers run at once.
    compilers: String,
}

impl Tree {
    /// Makes or renews the copy in a folder. A target folder that is there is used again; a new one
    /// begins as a copy of `base`.
    pub(super) fn make(
        folder: &Path,
        commit: &str,
        base: Option<&Path>,
        compilers: usize,
    ) -> Result<Tree> {
        let (source, target) = (folder.join("tree"), folder.join("target"));
        let tree = Tree { source, target, compilers: compilers.max(1).to_string() };
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        if !tree.source.join(".git").exists() {
            let mut clone = Command::new("git");
            clone.args(["clone", "--quiet", "--shared", "--no-checkout"]);
            util::run(clone.arg(root()).arg(&tree.source))?;
        }
        util::run(tree.git().args(["checkout", "--quiet", "--force", "--detach", commit]))?;
        if let (Some(base), false) = (base, tree.target.exists()) {
            let mut copy = Command::new("cp");
            util::run(copy.args(["-a", "--reflink=auto"]).arg(base).arg(&tree.target))?;
        }
        Ok(tree)
    }

    pub(super) fn source(&self) -> &Path {
        &self.source
    }

    fn git(&self) -> Command {
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.source);
        git
    }

    /// Does something while a patch is applied.
    pub(super) fn with_patch<T>(
        &self,
        patch: &Path,
        work: impl FnOnce(&Tree) -> Result<T>,
    ) -> Result<T> {
        util::said(self.git().arg("apply").arg(patch)).context("the patch does not apply")?;
        let done = work(self);
        self.restore()?;
        done
    }

    /// Takes back what was changed, and removes what failed tests have left: inputs that proptest
    /// would try again.
    fn restore(&self) -> Result<()> {
        util::said(self.git().args(["checkout", "--quiet", "--", "."]))?;
        util::said(self.git().args(["clean", "--quiet", "--force", "-d"])).map(drop)
    }

    /// Builds programs of tests.
    pub(super) fn build(&self, programs: &[String]) -> Result<Vec<Program>> {
        let target = self.target.to_string_lossy();
        let mut args = vec!["--target-dir", &*target, "--jobs", &self.compilers];
        args.extend(programs.iter().map(String::as_str));
        test::build(&self.source, &args, None)
    }

    /// Builds the installation, and lays it out where the end-to-end tests look for it.
    pub(super) fn stage(&self) -> Result<()> {
        let mut cargo = util::cargo();
        cargo.current_dir(&self.source).args(["run", "--quiet", "--package", "xtask"]);
        cargo.args(["--", "stage"]).env("CARGO_TARGET_DIR", &self.target);
        util::run(cargo.env("CARGO_BUILD_JOBS", &self.compilers))
    }
}
